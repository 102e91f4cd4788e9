"""The sections `slurm` and, of a pool, `elastic`."""

import difflib
import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Annotated

from pydantic import BeforeValidator, Field
from slurmutils import SlurmConfig

from components.roles.slurm.slurm.versions import NEEDED, RELEASES, release
from components.settings.money import MOST_OF_SMALL
from components.settings.problems import Report, Stack, show_name
from components.settings.rules import check_sites
from components.settings.section import Help, Section, key
from components.settings.types import (
    SERVER,
    Archive,
    Checksum,
    Number,
    PartitionName,
    SiteNames,
    Whole,
    full,
    must,
    word_set,
)

# tailrack derives these from the stack. Other values would cut nodes off, or let jobs leave their site.
OWNED_KEYS = word_set(
    """authinfo authtype clustername credtype disablerootjobs downnodes frontendname grestypes
    hashplugin include jobsubmitplugins maxnodecount nodename nodeset partitionname proctracktype schedulerparameters
    slurmctldaddr slurmctldhost slurmctldparameters slurmctldpidfile slurmctldport slurmdpidfile slurmdport
    slurmdspooldir slurmduser slurmuser srunportrange statesavelocation taskplugin topologyplugin treewidth"""
)
_BY_CGROUPS = word_set("proctracktype taskplugin")
# Keys for accounting that tailrack does not run.
_EXTERNAL = word_set("accountingstoragetype accountingstoragehost accountingstorageport accountingstoragebackuphost")
# The items of CommunicationParameters that a stack may add, with Linux's largest values (tcp(7)). Slurm ignores the
# others unless keepalivetime is set (src/common/net.c).
_KEEPALIVE = {"keepalivetime": 32767, "keepaliveinterval": 32767, "keepaliveprobes": 127}
# Values of PrologFlags that give each job a step for log-ins (slurm.conf(5)).
_CONTAIN = word_set("contain runinjob x11")
# Keys of Slurm 24.11 that slurmutils lacks (slurm.conf(5)), and fields of slurmutils that are not keys.
_MORE_KEYS = word_set("DataParserParameters EpilogTimeout PrologTimeout TLSType")
_NO_KEYS = word_set("down_nodes frontend_nodes nodes nodesets partitions")
# Minutes; M:S; H:M:S; D-H; D-H:M; D-H:M:S.
_TIME = r"[0-9]{1,7}|[0-9]{1,5}:[0-5][0-9]|[0-9]{1,5}(:[0-5][0-9]){2}|[0-9]{1,4}-([01]?[0-9]|2[0-3])(:[0-5][0-9]){0,2}"
# Values that slurmctld's parser accepts: text in double quotes, or a run without blanks.
_VALUE = r'"[^"]*"|[^\s"]+'
# Numbers that slurmctld accepts: C syntax, with K for 1024 (slurm's parse_config.c).
_NUMBER = r"(0x[0-9a-f]{1,16}|[0-9]{1,20})k?|unlimited|infinite"
# Numbers that slurmutils takes for truth values or does not have.
_MORE_NUMBERS = word_set(
    "epilogtimeout groupupdateforce jobfileappend jobrequeue killonbadexit prologtimeout slurmschedloglevel"
)
# Slurm keeps these times in 16 bits of seconds.
MOST_MINUTES = 1080

TimeLimit = Annotated[
    str,
    Field(coerce_numbers_to_str=True),
    must(full(f"(?i){_TIME}|UNLIMITED|INFINITE"), "is not a time limit of Slurm"),
    must(lambda limit: limit.strip("0:-"), "is zero", "Slurm would kill every job in the partition at once"),
    Help("a time limit of Slurm", 'write minutes, "HH:MM:SS", "D-HH:MM" (in quotes) or UNLIMITED'),
]


def _number(value: object) -> object:
    """Return a whole number without a point. Infinity and NaN are no numbers of Slurm."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("not a finite number")
    return int(value) if isinstance(value, float) and value.is_integer() else value


# A bare true is no text, because some keys need YES and others 1.
Setting = Annotated[
    str,
    Field(coerce_numbers_to_str=True),
    BeforeValidator(_number),
    must(lambda text: text.strip() and text.isprintable() and "#" not in text, "is empty, or has a line break or '#'"),
    must(lambda text: text.count('"') % 2 == 0, "has an unpaired double quote"),
    must(full(r".*[^\\]"), "ends with a backslash", "slurmctld would append the next line"),
    must(full(_VALUE), "has a blank outside of double quotes", "slurmctld would read the rest as another key"),
]

_SUPPORTED = RELEASES[RELEASES.index(NEEDED) :]
Release = Annotated[
    str,
    Field(coerce_numbers_to_str=True, pattern=r"^[0-9]{2}\.[0-9]{2}(\.[0-9]{1,2})?$"),
    must(full(r"[0-9]+\.[0-9]+\.[0-9]+"), "is not a complete release", fix="add its last number, as in 24.11.1"),
    must(
        lambda version: release(version) in _SUPPORTED,
        f"is not one of the supported releases ({', '.join(_SUPPORTED)})",
        "nodes and slurmctld might not understand each other",
        "write one of them with its last number",
    ),
    Help("a release such as 24.11.5", "write all three numbers", default_text="of the distribution"),
]
Packages = Annotated[
    str,
    Field(max_length=300, pattern=SERVER + r"(/[A-Za-z0-9_~+-][A-Za-z0-9._~+-]*)+$"),
    Help("an address or a path without a slash at its end", "write one, or leave it out", default_text="built here"),
]

_ROOT = "root would run unverified code"
# A key, the key that it requires, and how to write that one.
_OF_SOURCE = "write the SHA-256 of that file, from the release's page and not from the file itself"
_REQUIREMENTS = (
    ("release", "release_sha256", _OF_SOURCE),
    ("release_source", "release_sha256", _OF_SOURCE),
    ("release_packages", "release_packages_sha256", "write the SHA-256 of the SHA256SUMS there"),
    ("release_packages_sha256", "release_packages", "write the place of the packages in that list"),
)


class Partition(Section):
    """A partition in addition to those that every cluster has."""

    name: PartitionName
    """The partition's name; `all`, and one partition for each site and GPU kind, exist already."""
    sites: SiteNames = key(min_length=1)
    """The sites whose nodes are in the partition."""
    max_time: TimeLimit = "UNLIMITED"
    """The longest run time of a job: minutes, HH:MM:SS or D-HH:MM."""

    def check(self, stack: Stack, report: Report) -> None:
        check_sites(self, "sites", "slurmctld would reject its config", stack, report)


class Slurm(Section):
    """Additional settings of Slurm."""

    settings: dict[str, Setting] = key(
        "a mapping from a slurm.conf key to its value",
        'write KEY: value on one line, truth values as in slurm.conf and in quotes ("YES", "1")',
        default={},
    )
    """Additional keys for slurm.conf, such as `SlurmdTimeout: 300`."""
    partitions: tuple[Partition, ...] = key(fix="write [{name: long, sites: [cloud-a]}]", default=())
    """Additional partitions."""
    cgroups: bool | None = key(default_text="if the head node supports it", default=None)
    """Confine jobs with cgroups; default: where head node and machine support them. With true, others cannot join."""
    ssh_needs_job: bool = True
    """Let users log in by SSH only to compute nodes where they have a job, and into its cgroup (needs `cgroups`)."""
    job_limit_seconds: Whole = key(ge=0, le=604800, default=300)
    """Seconds that jobs may continue when their node leaves, before they are requeued."""
    save_seconds: Whole | None = key(ge=5, le=600, default=None)
    """Seconds for jobs to save between SIGTERM and SIGKILL. Default: 30, and 5 when their machine shuts down."""
    release: Release | None = None
    """One release for all machines, [built from source](day-2.md#one-slurm-release); default: the distributions'."""
    release_sha256: Checksum | None = None
    """SHA-256 of the release's source; required unless all machines get ready packages."""
    release_source: Archive | None = key(default_text="SchedMD's", default=None)
    """The release's source: its address, or its path on the head node."""
    release_packages: Packages | None = None
    """[ready packages](day-2.md#ready-packages) of the release: the address of a folder, or its path on the head node,
    with a SHA256SUMS and a folder for each kind of machine, such as debian-13-amd64. Others are built."""
    release_packages_sha256: Checksum | None = key(fix="write the output of sha256sum for your list", default=None)
    """SHA-256 of the SHA256SUMS of these packages."""

    def check(self, stack: Stack, report: Report) -> None:
        self._check_release(report)
        names: set[str] = set()
        for key_name, text in self.settings.items():
            path, name = report.at(self, "settings", key_name), key_name.lower()
            if name in names:
                breaks = "Slurm ignores case and would use only one of the values"
                report.add(path, "is set twice, in two spellings", breaks, "remove one of them")
            elif problem := self._problem(name, text, report.value(path, text), stack.config.accounting.enabled):
                report.add(path, *problem)
            names.add(name)

    def _problem(
        self, name: str, text: str, shown: str, accounting: bool
    ) -> tuple[str, str, str | Callable[[], str]] | None:
        """Return what is wrong with a key in lower case, what it breaks, and the remedy."""
        if name in OWNED_KEYS:
            breaks = "another value would cut nodes off from the head node, or let jobs leave their site"
            fix = "set tailrack:slurm.cgroups instead" if name in _BY_CGROUPS else "remove it"
            return "is a key that tailrack sets itself", breaks, fix
        if name not in known_keys():
            return "is not a key of slurm.conf", "slurmctld would not start", partial(_suggest_key, name)
        if name == "killwait" and self.save_seconds:
            breaks = "it would be unclear how long jobs may save"
            return "is set, and tailrack:slurm.save_seconds sets it too", breaks, "remove one of them"
        if name in number_keys() and not re.fullmatch(_NUMBER, text, re.I):
            return f"{shown} is not a number, as Slurm needs here", "slurmctld would not start", "write digits"
        if name == "communicationparameters" and (problem := _keepalive_problem(text)):
            fix = "write keepalivetime=SECONDS,keepaliveinterval=SECONDS,keepaliveprobes=COUNT"
            return problem, "nodes would lose the head node, or Slurm would ignore the value", fix
        if name == "prologflags" and self.ssh_needs_job and not _CONTAIN & set(text.strip('"').lower().split(",")):
            breaks = "jobs would have no step for log-ins, and no user could log in to a compute node by SSH"
            fix = "add Contain, or set tailrack:slurm.ssh_needs_job to false"
            return f"{shown} does not contain Contain", breaks, fix
        if accounting and name in _EXTERNAL:
            fix = "remove it, or write tailrack:accounting: {enabled: false} to set it yourself"
            breaks = "jobs would be recorded twice, or not at all"
            return "is set by tailrack, which runs the cluster's accounting", breaks, fix
        if accounting and name == "accountingstorageenforce":
            breaks = "Slurm would reject users before they have an account"
            fix = "remove it; tailrack enforces every limit in the config"
            return "is set by tailrack as soon as every user has an account", breaks, fix
        return None

    def _check_release(self, report: Report) -> None:
        keys = sorted(name for name in self.model_fields_set if name.startswith("release_"))
        for name in keys if self.release is None else ():
            fix, breaks = "write tailrack:slurm.release too, or remove this key", "each machine would get its own Slurm"
            report.add((self, name), "is set without a release", breaks, fix)
        for name, required, fix in _REQUIREMENTS if self.release is not None else ():
            if name in (keys or ("release",)) and required not in keys:
                report.add((self, required), f"is missing, but {name} is set", _ROOT, fix)


@lru_cache
def known_keys() -> Mapping[str, str]:
    """Return the valid keys of slurm.conf: a readable spelling by the lower-case key (Slurm ignores case)."""
    fields = [name for name in SlurmConfig.__annotations__ if name not in _NO_KEYS]
    spellings = ["".join(word.capitalize() for word in name.split("_")) for name in fields]
    return {key.lower(): key for key in (*spellings, *_MORE_KEYS)}


@lru_cache
def number_keys() -> frozenset[str]:
    """Return the lower-case keys whose value slurmctld reads only as a number."""
    types = SlurmConfig.__annotations__.items()
    return _MORE_NUMBERS | {name.replace("_", "") for name, kind in types if kind == int | None}


def _suggest_key(name: str) -> str:
    spellings = known_keys()
    similar = difflib.get_close_matches(name[:100], spellings.keys() - OWNED_KEYS, n=1)
    return f"did you mean '{spellings[similar[0]]}'?" if similar else "see man slurm.conf for the valid keys"


def _keepalive_problem(text: str) -> str:
    """Return what is wrong with a stack's CommunicationParameters; empty if nothing is."""
    items = [item.partition("=") for item in text.strip('"').split(",")]
    for name, _, value in items:
        if name not in _KEEPALIVE:
            return f"contains {show_name(name)}, and tailrack sets the others itself"
        if not re.fullmatch(r"[1-9][0-9]{0,4}", value) or int(value) > _KEEPALIVE[name]:
            return f"needs a number from 1 to {_KEEPALIVE[name]} for {name}"
    names = {name for name, _, _ in items}
    return "" if "keepalivetime" in names and len(names) == len(items) else "needs keepalivetime, and each item once"


class Elastic(Section):
    """A pool whose machines jobs bring: slurmctld knows placeholders, and `make elastic` rents what it asks for."""

    min: Whole = key(ge=0, le=1000, default=0)
    """Machines that stay rented without a job."""
    max: Whole | None = key(ge=1, le=1000, default=None)
    """The most machines that may be rented at once; default: all nodes of `sites`."""
    idle_minutes: Whole = key(ge=1, le=MOST_MINUTES, default=20)
    """Minutes without a job after which a machine goes back."""
    boot_minutes: Whole = key(ge=5, le=MOST_MINUTES, default=30)
    """Minutes in which a machine must run jobs; if not, it goes back, and the next attempt waits longer."""
    replace_sick: bool = False
    """Return a machine that a health check drained, once it has no job; at most one every 30 minutes."""
    max_price_per_hour: Number | None = key(fix="write an amount such as 12", gt=0, le=MOST_OF_SMALL, default=None)
    """The most that all rented machines together may cost per hour, in the stack's `currency`; needs the
    `price_per_hour` of machines whose cloud says no price (`lambda` and `digitalocean` do, in USD)."""
    cpus: Whole = key(fix="write the output of nproc on such a machine", ge=1, le=4096)
    """CPUs of each machine (`nproc`), which Slurm must know before the machine exists."""
    memory_gb: Number = key(fix="write the total that `free --gibi` shows on such a machine", ge=1, le=65536)
    """Memory of each machine in GiB (`free --gibi`, total)."""
    threads_per_core: Whole = key(ge=1, le=8, default=1)
    """CPUs of each core (`lscpu`, threads per core)."""

    def check(self, stack: Stack, report: Report) -> None:
        nodes, allowed, limit = stack.nodes, len(stack.config.nodes()), self.max_price_per_hour
        if stack.config.idle_limit_minutes is not None:
            breaks, fix = "make reap would destroy the placeholders", "remove it: elastic.idle_minutes returns machines"
            report.add((stack.config, "idle_limit_minutes"), "is set for an elastic pool", breaks, fix)
        if self.max is not None and self.max > len(nodes):
            problem, fix = f"is more than the {len(nodes)} nodes of the sites", f"write {len(nodes)}, or larger pools"
            report.bad((self, "max"), problem, "the others could not be rented", fix)
        if self.cpus % self.threads_per_core:
            problem = f"is not a multiple of threads_per_core ({self.threads_per_core})"
            report.bad((self, "cpus"), problem, "no machine could match it", "correct one of them")
        unpriced = [node.name for node in nodes if node.price_per_hour is None and not node.cloud_has_price]
        if limit is not None and unpriced:
            problem, fix = f"is set, and node {unpriced[0]} has no price", "write price_per_hour at its site"
            report.add((self, "max_price_per_hour"), problem, "the limit could not be kept", fix)
        elif limit is not None and nodes and not allowed:
            problem = f"{limit:g} is less than the price of one machine ({nodes[0].price})"
            report.add((self, "max_price_per_hour"), problem, "jobs could rent nothing", "write a higher limit")
        if 0 < allowed < self.min:
            problem = f"is more than the {allowed} machine(s) that may be rented"
            report.bad((self, "min"), problem, "they could not stay", f"write {allowed} or less")
