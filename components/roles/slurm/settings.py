"""The sections `slurm` and, of a pool, `elastic`."""

import difflib
import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Annotated

from pydantic import BeforeValidator, Field
from slurmutils import SlurmConfig

from components.roles.slurm.versions import NEEDED, RELEASES, release
from components.settings.money import MOST_OF_SMALL
from components.settings.problems import Report, Stack, show_name
from components.settings.rules import check_sites
from components.settings.section import Help, Section, key
from components.settings.types import Checksum, Number, PartitionName, SiteNames, Whole, refuse, word_set

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
UPSTREAM = "https://download.schedmd.com/slurm"


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
        refuse("is zero", "Slurm would kill every job in the partition at once")
    return value


TimeLimit = Annotated[
    str,
    BeforeValidator(_time_limit),
    Help("a time limit of Slurm", 'write minutes, "HH:MM:SS", "D-HH:MM" (in quotes) or UNLIMITED'),
]


def _setting(value: object) -> object:
    """Return a value in slurm.conf's form. A bare true is rejected, because some keys need YES and others 1."""
    if isinstance(value, float) and not value.is_integer():
        value = str(value) if math.isfinite(value) else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(int(value))
    if not isinstance(value, str):
        raise ValueError("not a text")
    if not value.strip() or not value.isprintable() or "#" in value:
        refuse("is empty, or contains a line break or '#'")
    if value.count('"') % 2:
        refuse("has an unpaired double quote")
    if value.endswith("\\"):
        refuse("ends with a backslash", "slurmctld would append the next line")
    if not re.fullmatch(_VALUE, value):
        refuse("has a blank outside of double quotes", "slurmctld would read the rest as another key")
    return value


Setting = Annotated[str, BeforeValidator(_setting)]


def address(version: str, source: str | None) -> str:
    """Return the address of a release's source: the config's, or SchedMD's."""
    return source or f"{UPSTREAM}/slurm-{version}.tar.bz2"


def _release(value: object) -> object:
    """Return a complete release number that nodes support."""
    if isinstance(value, float) or (isinstance(value, str) and re.fullmatch(r"\d\d\.\d\d", value)):
        refuse("is not a complete release", "the exact release would be unknown", f"add its last number: {value}.1")
    if not isinstance(value, str) or not re.fullmatch(r"\d\d\.\d\d\.\d{1,2}", value):
        raise ValueError("not a release")
    supported = [version for version in RELEASES if version >= NEEDED]
    if release(value) not in supported:
        problem = f"is not one of the supported releases ({', '.join(supported)})"
        fix = f"write one from {supported[0]} to {supported[-1]}"
        refuse(problem, "nodes and slurmctld might not understand each other", fix)
    return value


Release = Annotated[
    str,
    BeforeValidator(_release),
    Help("a release such as 24.11.5", "write all three numbers", default_text="of the distribution"),
]
_SERVER = r"^(https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?)?"
# Without characters that a shell interprets.
Source = Annotated[
    str,
    Field(max_length=300, pattern=_SERVER + r"(/[A-Za-z0-9._~+-]+)+[.]tar[.](gz|bz2|xz)$"),
    Help(
        "an address or a path that ends with .tar.gz, .tar.bz2 or .tar.xz",
        "write one of the two, or leave it out",
        default_text="SchedMD's download page",
    ),
]
Packages = Annotated[
    str,
    Field(max_length=300, pattern=_SERVER + r"(/[A-Za-z0-9_~+-][A-Za-z0-9._~+-]*)+$"),
    Help("an address or a path without a slash at its end", "write one, or leave it out", default_text="built here"),
]


_ROOT = "root would run unverified code"
# A key, the key that it requires, and how to write that one.
_REQUIREMENTS = (
    ("release_source", "release_sha256", "write the SHA-256 of that file, from the release's page and not from it"),
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
    """Confine jobs with cgroups; default: if the head node supports them, on each machine that does. With true,
    machines without cgroups cannot join."""
    ssh_needs_job: bool = True
    """Let users log in by SSH only to compute nodes where they have a job, and into its cgroup (pam_slurm_adopt).
    Needs `cgroups`; does not apply to the head node and to other accounts."""
    job_limit_seconds: Whole = key(ge=0, le=604800, default=300)
    """Seconds that jobs may continue when their node leaves, before they are requeued."""
    save_seconds: Whole | None = key(ge=5, le=600, default=None)
    """Seconds that jobs have to save between SIGTERM and SIGKILL: when they are cancelled or requeued, reach their
    time limit, or their machine shuts down. Default: 30, and 5 when their machine shuts down."""
    release: Release | None = None
    """One release for all machines, such as 24.11.5, [built from its source](day-2.md#one-slurm-release); default:
    the release of each machine's distribution."""
    release_sha256: Checksum | None = None
    """SHA-256 of the release's source; required unless all machines get ready packages."""
    release_source: Source | None = None
    """The release's source: the address of a .tar.gz, .tar.bz2 or .tar.xz, or its path on the head node."""
    release_packages: Packages | None = None
    """[ready packages](day-2.md#ready-packages) of the release: the address of a folder, or its path on the head
    node, with a SHA256SUMS and a folder for each kind of machine, such as debian-13-amd64. Default, and for kinds
    without a folder: packages are built."""
    release_packages_sha256: Checksum | None = key(fix="write the output of sha256sum for your list", default=None)
    """SHA-256 of the SHA256SUMS of these packages."""

    def check(self, stack: Stack, report: Report) -> None:
        self._check_release(report)
        names: set[str] = set()
        for key_name, text in self.settings.items():
            path = report.at(self, "settings", key_name)
            if key_name.lower() in names:
                breaks = "Slurm ignores case and would use only one of the values"
                report.add(path, "is set twice, in two spellings", breaks, "remove one of them")
            elif problem := self._problem(
                key_name.lower(), text, report.value(path, text), stack.config.accounting.enabled
            ):
                report.add(path, *problem)
            names.add(key_name.lower())

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
        keys = self.model_fields_set & {name for pair in _REQUIREMENTS for name in pair[:2]}
        for name in sorted(keys) if self.release is None else ():
            fix = "write tailrack:slurm.release too, or remove this key"
            breaks = "each machine would get its distribution's Slurm"
            report.add((self, name), "is set without a release", breaks, fix)
        if self.release is not None and not keys:
            problem = "is missing, so the source of the release cannot be verified"
            fix = "write the SHA-256 of that file, from the release's page and not from the file itself"
            report.add((self, "release_sha256"), problem, _ROOT, fix)
        for name, required, fix in _REQUIREMENTS if self.release is not None else ():
            if name in keys and required not in keys:
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
    names = [name for name, _, _ in items]
    if other := next((name for name in names if name not in _KEEPALIVE), None):
        return f"contains {show_name(other)}, and tailrack sets the others itself"
    if len(names) != len(set(names)) or "keepalivetime" not in names:
        return "needs keepalivetime, and each item once"
    for name, _, value in items:
        if not re.fullmatch(r"[1-9][0-9]{0,4}", value) or int(value) > _KEEPALIVE[name]:
            return f"needs a number from 1 to {_KEEPALIVE[name]} for {name}"
    return ""


class Elastic(Section):
    """A pool whose machines jobs bring: slurmctld knows placeholders, and `make elastic` rents what it asks for."""

    min: Whole = key(ge=0, le=1000, default=0)
    """Machines that stay rented without a job."""
    max: Whole | None = key(ge=1, le=1000, default=None)
    """The most machines that may be rented at once; default: all nodes of `sites`."""
    idle_minutes: Whole = key(ge=1, le=MOST_MINUTES, default=20)
    """Minutes without a job after which a machine goes back."""
    boot_minutes: Whole = key(ge=5, le=MOST_MINUTES, default=30)
    """Minutes in which a machine must run jobs; if it does not, it goes back, its job returns to the queue, and the
    next attempt waits longer."""
    replace_sick: bool = False
    """Return a machine that the health check or the deep check drained, once it has no job; the next job brings
    another. At most one every 30 minutes."""
    max_price_per_hour: Number | None = key(fix="write an amount such as 12", gt=0, le=MOST_OF_SMALL, default=None)
    """The most that all rented machines together may cost per hour, in the stack's `currency`; needs the
    `price_per_hour` of each machine whose cloud does not say its price (`lambda` and `digitalocean` do, in USD)."""
    cpus: Whole = key(fix="write the output of nproc on such a machine", ge=1, le=4096)
    """CPUs of each machine (`nproc`), which Slurm must know before the machine exists."""
    memory_gb: Number = key(fix="write the total that `free --gibi` shows on such a machine", ge=1, le=65536)
    """Memory of each machine in GiB (`free --gibi`, total)."""
    threads_per_core: Whole = key(ge=1, le=8, default=1)
    """CPUs of each core (`lscpu`, threads per core)."""

    def check(self, stack: Stack, report: Report) -> None:
        nodes, allowed, limit = stack.nodes, len(stack.config.nodes()), self.max_price_per_hour
        if stack.config.idle_limit_minutes is not None:
            breaks = "make reap would destroy the placeholders that bring machines"
            fix = "remove it: elastic.idle_minutes returns idle machines"
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
