"""Value types that several sections use."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Annotated, Any, Literal, NoReturn

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, WrapValidator
from pydantic_core import PydanticCustomError

from components.settings.network_names import AUTO, TAILNET
from components.settings.section import Help
from components.validation.model import parse_size

CROSS_SITE, NODE = "cross-site", "node"  # scopes of measurements, so no site may have these names
MOST_BYTES = 2**38  # of a message; a rank needs twice as much memory
GPUS_FOUND = "gpu"  # the partition of nodes whose GPUs the config does not name
SITE_PREFIX, GPU_PREFIX = "site-", "gpu-"  # prefixes of NodeSets, and of the Features that select their nodes
# Port ranges of the cluster's daemons, first and last; a test compares them with the roles' ports.
DAEMON_PORTS = ((2049, 2049), (6814, 6814), (6816, 6816), (6817, 6819), (20048, 20048), (60001, 60999))
Checksum = Annotated[
    str,
    Field(pattern=r"^[0-9a-f]{64}$"),
    Help("64 lowercase digits", "copy the SHA-256 from the release's page", "root would run unverified code"),
]
_NAME = "a name of at most 63 lowercase letters, digits and hyphens"
# Docker Hub's names; Enroot expects no registry for it.
_HUB = ("docker.io/", "index.docker.io/")
# A registry before a slash. Docker recognizes one by a dot, a port, or the name localhost.
_REGISTRY = re.compile(
    r"((?:[^@/#]+@)?(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+(?::[0-9]+)?|[A-Za-z0-9-]+:[0-9]+|localhost))/([^#]+)"
)
HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?"  # a host name
# A colon and a port.
PORT = r":([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
HOST_PORT = rf"{HOST}({PORT})?"
FOLDER = r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+"  # an absolute path that needs no quotes
SERVER = r"^(https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?)?"  # without characters that a shell interprets
Archive = Annotated[
    str,
    Field(max_length=300, pattern=SERVER + r"(/[A-Za-z0-9._~+-]+)+[.]tar[.](gz|bz2|xz)$"),
    Help("an address or a path that ends with .tar.gz, .tar.bz2 or .tar.xz", "write one of the two, or leave it out"),
]
_AROUND = ("/var/lib", "/var/cache", "/mnt", "/opt", "/srv")


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


# Usual mount points of such disks, besides folders below _AROUND.
_DISKS = word_set("data ephemeral local localdisk nvme raid scratch")
PLACES = f"a folder below {', '.join(_AROUND)}, or /{', /'.join(sorted(_DISKS))} or a folder in it"
# slurm.conf reserves "all", "default" and "localhost"; /etc/hosts of common systems has the rest.
RESERVED_NAMES = word_set(
    "all default none localhost localhost4 localhost6 broadcasthost ip6-localhost ip6-loopback ip6-localnet"
    " ip6-mcastprefix ip6-allnodes ip6-allrouters ip6-allhosts"
)


def refuse(problem: str, breaks: str | None = None, fix: str | None = None, *, hide: bool = False) -> NoReturn:
    """Reject a value with a specific problem. Without `breaks` or `fix`, the error uses those of the key.

    hide   the value may be a secret: the error does not show it
    """
    raise PydanticCustomError("refused", "refused", {"problem": problem, "breaks": breaks, "fix": fix, "hide": hide})


def must(
    test: Callable[[Any], object], problem: str, breaks: str | None = None, fix: str | None = None
) -> AfterValidator:
    """Return a validator that rejects a value for which `test` is false (see `refuse`). It tests a secret's text."""

    def check(value: Any) -> Any:
        if not test(value.get_secret_value() if isinstance(value, SecretStr) else value):
            refuse(problem, breaks, fix)
        return value

    return AfterValidator(check)


def full(pattern: str) -> Callable[[str], object]:
    """Return a test whether a text matches a pattern from its first to its last character, for `must`."""
    return re.compile(pattern).fullmatch


without_slash = AfterValidator(lambda address: address.rstrip("/"))


def _not_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a truth value is not a number")
    return value


Number = Annotated[float, BeforeValidator(_not_bool), Field(allow_inf_nan=False)]
Whole = Annotated[int, BeforeValidator(_not_bool)]

Size = Annotated[
    int,
    BeforeValidator(
        lambda raw: parse_size(raw) if isinstance(raw, str) else _not_bool(raw),
        json_schema_input_type=int | str,
    ),
    Field(ge=1),
    must(lambda value: value <= MOST_BYTES, "is more than 256G", "no machine has memory for a message of that size"),
    Help("a size in bytes such as 64K, 4M or 8G", "write digits and one of K, M, G (powers of 1024)"),
]


def check_name(value: str, pattern: str = r"[a-z]([a-z0-9-]*[a-z0-9])?") -> str:
    """Return a name that is valid for Slurm, DNS and the tailnet."""
    if value.lower() in RESERVED_NAMES:
        refuse("is a reserved word in slurm.conf or /etc/hosts")
    if not re.fullmatch(pattern, value):
        refuse("is not a name of lowercase letters, digits and hyphens that starts with a letter")
    return value


def own_prefix(breaks: str) -> AfterValidator:
    """Return a validator that rejects a name with a prefix of NodeSets."""
    problem = f"starts with '{SITE_PREFIX}' or '{GPU_PREFIX}', as the NodeSets that select nodes for partitions"
    return must(lambda name: not name.startswith((SITE_PREFIX, GPU_PREFIX)), problem, breaks)


own_node_name = own_prefix("a node with the name of a NodeSet could not register with slurmctld")

PartitionName = Annotated[str, Field(max_length=63), AfterValidator(check_name), Help(_NAME, "write one such as long")]
NodeName = Annotated[
    str, Field(max_length=63), own_node_name, AfterValidator(check_name), Help(_NAME, "write a name such as a1")
]
SiteName = Annotated[
    str,
    Field(max_length=63),
    must(lambda name: name not in (CROSS_SITE, NODE), "is a scope of measurements", "the site would share its floors"),
    AfterValidator(check_name),
    Help(_NAME, "write a name such as cloud-a"),
]


@dataclass(frozen=True)
class Gpu:
    """The GPUs of one node: Slurm's gres type, such as h200, and the count."""

    kind: str
    count: int


def _gpu(value: object) -> object:
    if isinstance(value, str) and (match := re.fullmatch(r"([a-z][a-z0-9-]{0,40}):([1-9][0-9]{0,2})", value)):
        if match[1] == GPUS_FOUND:
            refuse("is not a GPU kind", "this partition is for nodes whose GPUs the config does not name")
        return Gpu(check_name(match[1]), int(match[2]))
    raise ValueError("not kind:count")


GpuText = Annotated[
    Gpu,
    BeforeValidator(_gpu, json_schema_input_type=str),
    Help("a GPU kind and a count such as h200:8", "write KIND:COUNT (KIND in lowercase letters, digits and hyphens)"),
]

Feature = Annotated[
    str,
    Field(max_length=63, pattern=r"^[A-Za-z][A-Za-z0-9_.-]*$"),
    own_prefix("the node would run the jobs of another site or GPU kind"),
]


class AnyNodes(tuple[str, ...]):
    """A list without names: any nodes that have no job. `most` is their greatest number; 0 for all."""

    most = 0


def _any_nodes(value: object, names: Callable[[object], tuple[str, ...]]) -> tuple[str, ...]:
    nodes = AnyNodes()
    if type(value) is int and value > 1:
        nodes.most = value
    return nodes if nodes.most or value == "idle" else names(value)


def enroot_image(text: str) -> str:
    """Return an image in Enroot's spelling, REGISTRY#IMAGE, from either spelling."""
    for hub in _HUB:
        text = text.removeprefix(hub)
    match = _REGISTRY.fullmatch(text)
    return f"{match[1]}#{match[2]}" if match else text


def _network(value: object) -> IPv4Network:
    fix = None
    try:
        if isinstance(value, str) and "/" in value:
            fix = f"write {IPv4Network(value, strict=False)}"
            return IPv4Network(value)
    except ValueError:
        pass
    refuse("is not an IPv4 network with its prefix length and no host bits", fix=fix)


Network = Annotated[IPv4Network, BeforeValidator(_network)]
# A network for machines, which is apart from the tailnet.
OwnNetwork = Annotated[
    Network,
    must(
        lambda own: not own.overlaps(TAILNET),
        f"overlaps {TAILNET}, the range of the tailnet",
        "packets for a node's tailnet address would go to this network instead",
    ),
]

Features = Annotated[
    tuple[Feature, ...],
    Help("a list of words such as [nvme, ib]", "write letters, digits, '_', '.' and '-', a letter first"),
]
NodeNames = Annotated[tuple[NodeName, ...], Help("a list of node names", "write [a1, a2]")]
NodeChoice = Annotated[
    tuple[NodeName, ...],
    WrapValidator(_any_nodes, json_schema_input_type=tuple[str, ...] | Annotated[int, Field(ge=2)] | Literal["idle"]),
    Help("a list of node names, a number above 1, or idle", "write [a1, a2], 4 or idle", default_text="all"),
]
SiteNames = Annotated[tuple[str, ...], Help("a list of names of sites", default_text="all sites")]
FreeText = Annotated[
    str, Field(max_length=200, coerce_numbers_to_str=True), Help("a short text", 'write one such as "2"')
]
OneLine = Annotated[SecretStr, must(full(r"[!-~]{1,4096}"), "is empty, or contains blanks or special characters")]
AccessKey = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_/+=.-]{1,200}$"), Help("the id of an access key", "copy it from its provider")
]
_no_daemon = must(lambda port: not any(a <= port <= b for a, b in DAEMON_PORTS), "is a port of another daemon")
Port = Annotated[Whole, Field(ge=1024, le=65535), _no_daemon]
SshPort = Annotated[Whole, Field(ge=1, le=65535)]
LocalFolder = Annotated[
    str,
    Field(max_length=200),
    must(full(FOLDER), "is not an absolute path of plain letters, digits, '.', '_' and '-'"),
    must(
        full(rf"({'|'.join(_AROUND)})/.+|/({'|'.join(_DISKS)})(/.*)?"),
        "may be a folder of the system",
        "everyone who runs jobs could put files there",
    ),
    Help("an absolute path", f"write {PLACES}"),
]


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """A node's settings that the config has for its kind of site."""

    name: str  # Slurm's node name and the machine's name on the tailnet
    site: str  # its failure and bandwidth domain
    features: tuple[str, ...] = ()  # Slurm features from the config, in addition to those of every node
    gpu: Gpu | None = None  # the GPUs that the config promises; the check compares them with the machine's
    fabric: str = AUTO  # the IP network of jobs inside its site: `auto`, `tailnet`, or an interface's name
    rdma: str = AUTO  # the RDMA ports of these jobs: `auto`, `none`, or comma-separated names
    spot: str = ""  # the provider that may take the machine back: `aws`, `gcp` or `azure`; empty if none does
    in_all: bool = True  # whether partition `all` has the nodes of its site
    pod: bool = False  # whether it is a container without systemd, a TUN device and mounts (components/roles/pods/pod)
    stage: bool = False  # of a pod: whether jobs' folders are brought there by default (role pod_staging)
    login: bool = False  # whether users log in there, and it runs no jobs
    adopt: bool = False  # whether it is in the tailnet already and stays in it, even when it leaves the cluster
    take_over: bool = False  # whether it may be taken from another cluster
