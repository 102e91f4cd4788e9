"""The kinds of value a stack config holds: what each accepts, and what it says when it does not."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, NoReturn

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo
from pydantic_core import PydanticCustomError

from components.validation.sizes import parse_size
from stacks.config_problems import Says, shown

TAILNET_RANGE = ipaddress.IPv4Network("100.64.0.0/10")  # RFC 6598 space; Tailscale gives its addresses from it
PRIVATE_RANGES = tuple(map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
CROSS_SITE = "cross-site"
SITE_PREFIX, GPU_PREFIX = "site-", "gpu-"  # names of NodeSets, and of the Features that select their nodes


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


# slurm.conf gives "all", "default" and "localhost" meanings of their own; every hosts file has the rest.
RESERVED_NAMES = words(
    "all default localhost none broadcasthost ip6-localhost ip6-loopback ip6-allnodes ip6-allrouters"
)
# Users and groups of Debian's base-passwd and of packages that nodes install or clouds ship; "admin" is a
# group on Ubuntu. A user takes a group of its own name, so both kinds are one set.
RESERVED_USERS = words(
    """root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats nobody nogroup
    adm tty disk kmem dialout fax voice cdrom floppy tape sudo audio dip operator src shadow utmp video sasl
    plugdev staff users input kvm render sgx crontab messagebus sshd ssh statd polkitd tss netdev admin wheel
    docker lxd munge slurm tailscale mysql postgres avahi ntp dnsmasq systemd-network systemd-resolve
    systemd-timesync systemd-journal systemd-coredump systemd-oom"""
)
HOST_KEY_TYPES = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)
# A share mounted on, or made of, one of these hides or publishes part of the system.
SYSTEM_FOLDERS = words("/ /bin /boot /dev /etc /home /lib /lib64 /proc /root /run /sbin /sys /tmp /usr /var /var/lib")
OFF_LIMITS = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr")


def refuse(what: str, breaks: str | None = None, fix: str | None = None) -> NoReturn:
    """Refuse a value for a reason of its own; where `breaks` or `fix` is left out, the field's words stand."""
    raise PydanticCustomError("refused", "refused", {"what": what, "breaks": breaks, "fix": fix})


def _not_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a truth value is not a number")
    return value


Whole = Annotated[int, BeforeValidator(_not_bool)]
Number = Annotated[float, BeforeValidator(_not_bool), Field(allow_inf_nan=False)]


def _size(value: object) -> object:
    return parse_size(value) if isinstance(value, str) else _not_bool(value)


Size = Annotated[int, BeforeValidator(_size), Field(ge=1, le=2**50)]


def check_name(value: str, pattern: str = r"[a-z]([a-z0-9-]*[a-z0-9])?") -> str:
    """A name that Slurm, DNS and the tailnet all take."""
    if value.lower() in RESERVED_NAMES:
        refuse("is a word with a meaning of its own in slurm.conf or /etc/hosts")
    if not re.fullmatch(pattern, value):
        refuse("is not a name of lowercase letters, digits and hyphens that starts with a letter")
    return value


def check_node_name(value: str) -> str:
    """A node's name: not one that a NodeSet has or may get."""
    if value.startswith((SITE_PREFIX, GPU_PREFIX)):
        refuse(
            f"starts with '{SITE_PREFIX}' or '{GPU_PREFIX}', which begin the names of NodeSets",
            "a node and a NodeSet of one name keep the node from registering with slurmctld",
        )
    return check_name(value)


def _pool_name(value: str) -> str:
    check_node_name(value + "1")
    return check_name(value, r"[a-z][a-z0-9-]*")


def _site_name(value: str) -> str:
    if value == CROSS_SITE:
        refuse("is the word for measurements between sites", "its floor and theirs could not be told apart")
    return check_name(value)


def _user_name(value: str) -> str:
    if value in RESERVED_USERS or value.startswith("systemd-"):
        refuse(
            "is a name that Debian or a package on the nodes uses itself",
            "the system account would get this user's uid, home and key",
        )
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", value):
        refuse("is not a name of lowercase letters, digits, '-' and '_' that starts with a letter")
    return value


_NAME_SAYS = "a name of at most 63 lowercase letters, digits and hyphens"
NodeName = Annotated[str, Field(max_length=63), AfterValidator(check_node_name)]
SiteName = Annotated[str, Field(max_length=63), AfterValidator(_site_name)]
PartitionName = Annotated[str, Field(max_length=63), AfterValidator(check_name)]
PoolName = Annotated[str, Field(max_length=59), AfterValidator(_pool_name)]  # 59 + 4 digits = a 63 byte label
UserName = Annotated[str, Field(max_length=32), AfterValidator(_user_name)]


def name_says(breaks: str, fix: str) -> Says:
    """What a field that holds a name says."""
    return Says(_NAME_SAYS, breaks, fix)


def _id(value: int) -> int:
    if value == 65534:
        refuse("is the number of nobody", "files of every squashed root and unknown user would be this one's")
    if 60000 <= value <= 65535:
        refuse("lies in 60000-65535, which Debian and systemd keep for accounts they make themselves")
    return value


Id = Annotated[Whole, Field(ge=1000, le=4294967293), AfterValidator(_id)]


@dataclass(frozen=True)
class Gpu:
    """The GPUs of one node: Slurm's gres type, such as h200, and how many."""

    kind: str
    count: int


def _gpu(value: object) -> object:
    if isinstance(value, str) and (match := re.fullmatch(r"([a-z][a-z0-9-]{0,40}):([1-9][0-9]{0,2})", value)):
        return Gpu(check_name(match[1]), int(match[2]))
    raise ValueError("not kind:count")


GpuText = Annotated[Gpu, BeforeValidator(_gpu)]


def _feature(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", value):
        refuse("is not a word of letters, digits, '_', '.' and '-' that starts with a letter")
    if value.startswith((SITE_PREFIX, GPU_PREFIX)):
        refuse(
            f"starts with '{SITE_PREFIX}' or '{GPU_PREFIX}', by which partitions choose their nodes",
            "the node would run the jobs of another site or GPU kind",
        )
    return value


Feature = Annotated[str, Field(max_length=63), AfterValidator(_feature)]


def _subnet(value: object) -> object:
    if not isinstance(value, str) or "/" not in value:
        refuse("is not a network with its prefix length")
    try:
        network = ipaddress.IPv4Network(value)
    except ValueError as error:
        refuse(f"is not an IPv4 network ({shown(str(error))})")
    if network.overlaps(TAILNET_RANGE):
        refuse(
            f"overlaps {TAILNET_RANGE}, the tailnet's own range",
            "packets for a node's tailnet address would go to this network instead",
        )
    if not any(network.subnet_of(private) for private in PRIVATE_RANGES):
        refuse("is not within 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16")
    return network


Subnet = Annotated[ipaddress.IPv4Network, BeforeValidator(_subnet)]


def _key_file(value: object, info: ValidationInfo) -> object:
    """The key's absolute path; a relative one starts at the folder of the stack config."""
    if not isinstance(value, str):
        raise ValueError("not a path")
    try:
        path = Path(value).expanduser()
        path = (info.context or {}).get("base_dir", Path()) / path  # an absolute path stays as it is
        if not path.is_file():
            refuse(f"(that is {shown(path)}) is not a file on this machine")
        with path.open("rb") as file:
            head = file.read(65536)
    except (OSError, RuntimeError) as error:  # RuntimeError: ~name of nobody known
        refuse(f"cannot be read ({type(error).__name__})")
    armour = re.search(rb"-----BEGIN ([A-Z0-9 ]*)PRIVATE KEY-----(.*?)-----END", head, re.DOTALL)
    if armour is None:
        public = head.startswith(tuple(name.encode() + b" " for name in HOST_KEY_TYPES))
        refuse(f"(that is {shown(path)}) holds {'the public half of a key' if public else 'no private key'}")
    if _is_encrypted(armour[1], armour[2]):
        refuse(
            f"(that is {shown(path)}) is locked with a passphrase",
            "nobody is there to type it when the program logs in",
            "make a key without one for this cluster: ssh-keygen -t ed25519 -N '' -f FILE",
        )
    return path


def _is_encrypted(kind: bytes, body: bytes) -> bool:
    """Whether a PEM or OpenSSH private key needs a passphrase (openssh's PROTOCOL.key: magic, then cipher)."""
    if b"ENCRYPTED" in kind or b"ENCRYPTED" in body:
        return True
    if kind != b"OPENSSH ":
        return False
    try:
        return not base64.b64decode(body).startswith(b"openssh-key-v1\0\0\0\0\x04none")
    except binascii.Error:
        return False


KeyFile = Annotated[Path, BeforeValidator(_key_file)]


def _host_key(value: str) -> str:
    """'TYPE BASE64' with any comment dropped; the type is also written inside the base64 (RFC 4253, 6.6)."""
    words = value.split()
    if len(words) > 2 and words[0] not in HOST_KEY_TYPES and words[1] in HOST_KEY_TYPES:
        refuse("starts with a host's name or address", fix="leave out its first word; the key starts at its type")
    if len(words) < 2 or words[0] not in HOST_KEY_TYPES:
        refuse("is not a public host key")
    kind = words[0].encode()
    try:
        blob = base64.b64decode(words[1], validate=True)
    except ValueError:
        refuse("is a host key whose base64 part is damaged")
    if not blob.startswith(len(kind).to_bytes(4, "big") + kind) or len(blob) <= 4 + len(kind):
        refuse("is a host key whose base64 part is cut off or of another type")
    return f"{words[0]} {words[1]}"


HostKey = Annotated[str, AfterValidator(_host_key)]


def _address(value: str) -> str:
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        label = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
        if len(value) > 253 or not re.fullmatch(rf"{label}(\.{label})*\.?", value):
            refuse("is neither an IP address nor a host name")
        if re.fullmatch(r"[0-9.]+", value):
            refuse("has the look of an IPv4 address and is none")
    return value.lower().rstrip(".")


Address = Annotated[str, AfterValidator(_address)]


def _folder(value: str) -> str:
    if not value.startswith("/"):
        refuse("is not an absolute path")
    if not re.fullmatch(r"/[A-Za-z0-9._/-]*", value) or ".." in value.split("/"):
        refuse("has '..', a space or a special character in it", "/etc/exports and systemd would read another path")
    folder = str(PurePosixPath("/" + value.strip("/")))
    if folder in SYSTEM_FOLDERS or folder.startswith(tuple(f"{top}/" for top in OFF_LIMITS)):
        refuse("is a folder of the system itself", "it would be hidden by the mount, or open to every node")
    return folder


Folder = Annotated[str, AfterValidator(_folder)]


def _time_limit(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ValueError("not text")
    if value.upper() in ("UNLIMITED", "INFINITE"):
        return "UNLIMITED"
    if not re.fullmatch(r"\d{1,7}|\d{1,5}(:\d\d){1,2}|\d{1,4}-\d{1,2}(:\d\d){0,2}", value, re.ASCII):
        raise ValueError("not a time")
    if not value.strip("0:-"):
        refuse("is no time at all", "every job in the partition would end as it starts")
    return value


TimeLimit = Annotated[str, BeforeValidator(_time_limit)]


def _setting(value: object) -> object:
    """A value as slurm.conf has it. A bare true is refused: Slurm writes YES in one key and 1 in another."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ValueError("not a text")
    if not value.strip() or not value.isprintable() or "#" in value:
        refuse("is empty, or has a line break or '#' in it")
    return value


Setting = Annotated[str, BeforeValidator(_setting)]


def _word(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


FreeText = Annotated[str, BeforeValidator(_word), Field(max_length=200)]


def _control_url(value: str) -> str:
    if not re.fullmatch(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?/?", value):
        refuse("is not the http:// or https:// address of a control server")
    return value.rstrip("/")


ControlUrl = Annotated[str, AfterValidator(_control_url)]


def _auth_key(value: SecretStr) -> SecretStr:
    key = value.get_secret_value()
    if not key.isprintable() or not key or " " in key:
        refuse("is empty, or has spaces or line breaks in it")
    if key.startswith("tskey-api-"):
        refuse(
            "is an API access token, not an auth key",
            "no node can join with it",
            "make an auth key in the admin console, or an OAuth client's secret (tskey-client-...)",
        )
    return value


AuthKey = Annotated[SecretStr, AfterValidator(_auth_key)]
