"""Slurm beyond what tailrack sets itself: the section `slurm`, and which keys of slurm.conf a stack may set."""

import difflib
import math
import re
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from slurmutils import SlurmConfig

from components.roles.slurm.settings_release import check_packages, check_release, check_release_number, check_source
from components.settings.draft import Draft
from components.settings.problems import Report, below
from components.settings.section import Section, key, named, number, yes_no
from components.settings.types import Checksum, PartitionName, Whole, refuse, words

# tailrack derives these from the stack: another value would cut nodes off or undo what keeps jobs inside a site.
OWNED_KEYS = words(
    """authinfo authtype clustername communicationparameters credtype disablerootjobs downnodes frontendname grestypes
    hashplugin include jobsubmitplugins maxnodecount nodename nodeset partitionname proctracktype schedulerparameters
    slurmctldaddr slurmctldhost slurmctldparameters slurmctldpidfile slurmctldport slurmdpidfile slurmdport
    slurmdspooldir slurmduser slurmuser srunportrange statesavelocation taskplugin topologyplugin treewidth"""
)
_BY_CGROUPS = words("proctracktype taskplugin")
# Values of PrologFlags with which each job has a step that a login can land in (slurm.conf(5)).
_CONTAIN = words("contain runinjob x11")
# Keys of Slurm 24.11 that slurmutils does not have yet (slurm.conf(5)), and its words for lines that are no keys.
_MORE_KEYS = words("DataParserParameters EpilogTimeout PrologTimeout TLSType")
_NO_KEYS = words("down_nodes frontend_nodes nodes nodesets partitions")

# Minutes; M:S; H:M:S; D-H; D-H:M; D-H:M:S.
_TIME = r"[0-9]{1,7}|[0-9]{1,5}:[0-5][0-9]|[0-9]{1,5}(:[0-5][0-9]){2}|[0-9]{1,4}-([01]?[0-9]|2[0-3])(:[0-5][0-9]){0,2}"
# What slurmctld's parser takes for a value: text in double quotes, or a run without blanks.
_VALUE = r'"[^"]*"|[^\s"]+'
# What it takes for a number, which it reads as C does, with K for 1024 (slurm's parse_config.c).
_NUMBER = r"(0x[0-9a-f]{1,16}|[0-9]{1,20})k?|unlimited|infinite"
# Keys that slurmutils has as truth values, and Slurm as numbers; and of those that slurmutils does not have.
_MORE_NUMBERS = words(
    "epilogtimeout groupupdateforce jobfileappend jobrequeue killonbadexit prologtimeout slurmschedloglevel"
)


def _time_limit(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ValueError("not text")
    if value.upper() in ("UNLIMITED", "INFINITE"):
        return "UNLIMITED"
    if not re.fullmatch(_TIME, value):
        raise ValueError("not a time")
    if not value.strip("0:-"):
        refuse("is no time at all", "every job in the partition would end as it starts")
    return value


def _setting(value: object) -> object:
    """A value as slurm.conf has it. A bare true is refused: Slurm writes YES in one key and 1 in another."""
    if isinstance(value, float) and not value.is_integer():
        value = str(value) if math.isfinite(value) else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(int(value))
    if not isinstance(value, str):
        raise ValueError("not a text")
    if not value.strip() or not value.isprintable() or "#" in value:
        refuse("is empty, or has a line break or '#' in it")
    if value.count('"') % 2:
        refuse("has a double quote without its other half")
    if value.endswith("\\"):
        refuse("ends with a backslash", "slurmctld would take the next line for its end")
    if not re.fullmatch(_VALUE, value):
        refuse("has a blank outside of double quotes", "slurmctld would take what comes after it for another key")
    return value


TimeLimit = Annotated[str, BeforeValidator(_time_limit)]
Setting = Annotated[str, BeforeValidator(_setting)]
Release = Annotated[str, BeforeValidator(check_release_number)]
Source = Annotated[str, Field(max_length=300), AfterValidator(check_source)]
Packages = Annotated[str, Field(max_length=300), AfterValidator(check_packages)]


class Partition(Section):
    """A partition besides the ones that every cluster has."""

    name: PartitionName = named(
        "the partition's name; `all`, and one by the name of each site and GPU kind, are there already",
        breaks="sbatch -p could not name it",
        fix="write a name such as long",
    )
    sites: tuple[str, ...] = key(
        "the sites whose nodes are in it",
        wants="a list of one site name or more",
        breaks="the partition would have no nodes",
        fix="write sites' names",
        min_length=1,
    )
    max_time: TimeLimit = key(
        "the longest a job may run: minutes, HH:MM:SS or D-HH:MM",
        wants="a time limit of Slurm's",
        breaks="slurmctld would not start",
        fix='write minutes, "HH:MM:SS", "D-HH:MM" (in quotes) or UNLIMITED',
        default="UNLIMITED",
    )


class Slurm(Section):
    """Slurm beyond what tailrack sets itself."""

    settings: dict[str, Setting] = key(
        "more keys for slurm.conf, such as `SlurmdTimeout: 300`",
        wants="a mapping from a slurm.conf key to its value",
        breaks="slurmctld would not start, or read something else",
        fix='write KEY: value on one line, truth values as in slurm.conf and in quotes ("YES", "1")',
        default={},
    )
    partitions: tuple[Partition, ...] = key(
        "more partitions",
        wants="a list of partitions",
        breaks="there would be none of them",
        fix="write [{name: long, sites: [cloud-a]}]",
        default=(),
    )
    cgroups: bool | None = yes_no(
        "confine jobs with cgroups; left out, if the head node can", None, "what the head node offers"
    )
    ssh_needs_job: bool = yes_no(
        "let users log in by SSH only to compute nodes where they have a job, and into its cgroup (pam_slurm_adopt); "
        "needs `cgroups`, and concerns neither the head node nor other accounts",
        default=True,
    )
    job_limit_seconds: Whole = number(
        "how long jobs may go on when their node leaves, before they are requeued",
        0,
        604800,
        breaks="a node that leaves would wait for its jobs for ever",
        default=300,
    )
    release: Release | None = key(
        "one release for all machines, such as 24.11.5, [built from its source](slurm-releases.md); left out, each has "
        "its distribution's",
        wants="a release such as 24.11.5",
        breaks="machines of several distributions might not speak with each other",
        fix="write all three numbers",
        otherwise="each machine's distribution's",
        default=None,
    )
    release_sha256: Checksum | None = key(
        "SHA-256 of the release's source; needed unless all machines get ready packages",
        wants="64 lowercase digits",
        breaks="whatever comes from there would be run as root",
        fix="write the sum that you have compared with the release's page",
        default=None,
    )
    release_source: Source | None = key(
        "where that source comes from: the address of a .tar.gz, .tar.bz2 or .tar.xz, or its path on the head node",
        wants="an address or a path that ends with .tar.gz, .tar.bz2 or .tar.xz",
        breaks="there would be nothing to build",
        fix="write one of the two, or leave it out",
        otherwise="SchedMD's own place",
        default=None,
    )
    release_packages: Packages | None = key(
        "[ready packages](slurm-releases.md#ready-packages) of the release: the address of a folder, or its path on "
        "the head node, with a SHA256SUMS and a folder for each kind of machine, such as debian-13-amd64; left out, or "
        "for a kind that is not there, they are built",
        wants="an address or a path without a slash at its end",
        breaks="no machine could install the release",
        fix="write one of the two, or leave it out",
        otherwise="packages are built",
        default=None,
    )
    release_packages_sha256: Checksum | None = key(
        "SHA-256 of the SHA256SUMS of these packages",
        wants="64 lowercase digits",
        breaks="whatever comes from there would be run as root",
        fix="write what sha256sum says of the list that you have made or compared",
        default=None,
    )


@lru_cache
def known_keys() -> Mapping[str, str]:
    """Keys that slurm.conf may have, from lower case (Slurm ignores case) to a readable spelling."""
    fields = [name for name in SlurmConfig.__annotations__ if name not in _NO_KEYS]
    spelt = ["".join(word.capitalize() for word in name.split("_")) for name in fields]
    return {key.lower(): key for key in (*spelt, *_MORE_KEYS)}


@lru_cache
def number_keys() -> frozenset[str]:
    """The keys, in lower case, whose value slurmctld reads as a number and as nothing else."""
    types = SlurmConfig.__annotations__.items()
    return _MORE_NUMBERS | {name.replace("_", "") for name, kind in types if kind == int | None}


def _key_meant(name: str) -> str:
    known = known_keys()
    near = difflib.get_close_matches(name[:100], known.keys() - OWNED_KEYS, n=1)
    return f"did you mean '{known[near[0]]}'?" if near else "see man slurm.conf for the keys there are"


def check_slurm(slurm: Draft, report: Report) -> None:
    """Report keys that are tailrack's own, unknown to Slurm, there twice, or words where Slurm wants a number."""
    check_release(slurm, report)
    settings = slurm.raw.get("settings")
    if not isinstance(settings, Mapping):
        return
    known, numbers = known_keys(), number_keys()
    read = slurm.value("settings")
    values = read if isinstance(read, Mapping) else {}
    seen: set[str] = set()
    for written in settings:
        name, path = str(written).lower(), below(slurm.at("settings"), str(written))
        if name in OWNED_KEYS:
            fix = "set tailrack:slurm.cgroups instead" if name in _BY_CGROUPS else "take it out"
            breaks = "another value would cut nodes off from the head node, or let jobs out of their site"
            report.add(path, "is a key that tailrack sets itself", breaks, fix)
        elif name not in known:
            report.add(path, "is not a key of slurm.conf", "slurmctld would not start", partial(_key_meant, name))
        elif name in seen:
            breaks = "Slurm ignores case, and would take the value of either"
            report.add(path, "is there twice, in two spellings", breaks, "take one of them out")
        elif (
            name in numbers and isinstance(value := values.get(written), str) and not re.fullmatch(_NUMBER, value, re.I)
        ):
            breaks = "slurmctld would not start"
            report.add(
                path, f"{report.value(path, value)} is not a number, which Slurm wants here", breaks, "write digits"
            )
        elif (
            name == "prologflags"
            and slurm.value("ssh_needs_job")
            and isinstance(value := values.get(written), str)
            and not _CONTAIN & set(value.strip('"').lower().split(","))
        ):
            breaks = "jobs would have no place for a login, and no user could log in to a compute node by SSH"
            fix = "add Contain, or set tailrack:slurm.ssh_needs_job to false"
            report.add(path, f"{report.value(path, value)} has no Contain", breaks, fix)
        seen.add(name)
