"""Value types for SSH access to a machine: address, private key file, pinned host key."""

import base64
import binascii
import ipaddress
import re
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo

from components.settings.problems import Report, shown
from components.settings.section import Help, Section, keys_of
from components.settings.ssh_keys import KINDS, host_key
from components.settings.types import must, refuse

Passphrase = Annotated[SecretStr, Help(leaked="change it (ssh-keygen -p -f FILE)")]
SudoPassword = Annotated[
    SecretStr,
    must(str.isprintable, "has a line break or another character that is not printable", "sudo reads one line"),
    Help("a password of one line", leaked="change it (passwd)"),
]
PASSPHRASE = "private_key_passphrase"  # noqa: S105 - no passphrase
RSA = "ssh-rsa"
LONGEST_KEY = 65536  # bytes of a file
_ARMOUR = re.compile(rb"-----BEGIN ([A-Z0-9 ]*)PRIVATE KEY-----(.*?)-----END", re.DOTALL)


def _key_file(value: object, info: ValidationInfo) -> Path:
    """Return the key's absolute path; a relative one starts at the folder of the stack config."""
    if not isinstance(value, str):
        raise ValueError("not a path")
    try:
        path = Path(value).expanduser()
        path = (info.context or {}).get("base_dir", Path()) / path  # an absolute path does not change
        if not path.is_file():
            refuse(f"(that is {shown(path)}) is not a file on this machine")
        with path.open("rb") as file:
            head = file.read(LONGEST_KEY + 1)
    except (OSError, RuntimeError) as error:  # RuntimeError: ~name of an unknown user
        refuse(f"cannot be read ({type(error).__name__})")
    if len(head) > LONGEST_KEY:
        refuse(f"(that is {shown(path)}) is longer than 64 KiB, too long for a private key")
    armour = _ARMOUR.search(head)
    if armour is None:
        public = head.startswith(tuple(name.encode() + b" " for name in (*KINDS, RSA)))
        fix = "write the path of the private key, without .pub" if public else None
        contents = "the public half of a key" if public else "no private key"
        refuse(f"(that is {shown(path)}) contains {contents}", fix=fix)
    try:
        head.decode()
    except UnicodeDecodeError:
        refuse(f"(that is {shown(path)}) contains bytes that are not UTF-8", fix="keep only the key in the file")
    if armour[1] == b"ENCRYPTED ":
        refuse(
            f"(that is {shown(path)}) is locked with a passphrase, in PKCS#8 format",
            "the command provider cannot open it",
            "convert it to OpenSSH's format: ssh-keygen -p -f FILE",
        )
    if not is_locked(path) and not opens(path, None):
        refuse(
            f"(that is {shown(path)}) is damaged, or of a format that SSH does not read",
            "tailrack could not log in",
            "copy the whole file again, and check it: ssh-keygen -y -f FILE",
        )
    return Path(path)


def _open_key_file(value: object, info: ValidationInfo) -> Path:
    path = _key_file(value, info)
    if is_locked(path):
        refuse(
            f"(that is {shown(path)}) is locked with a passphrase",
            "no one can type the passphrase when tailrack logs in",
            "create a key without a passphrase for this cluster: ssh-keygen -t ed25519 -N '' -f FILE",
        )
    return path


@cache
def is_locked(path: Path) -> bool:
    """Return whether a private key file needs a passphrase (openssh's PROTOCOL.key: magic, then cipher)."""
    armour = _ARMOUR.search(path.read_bytes())
    if armour is None or b"ENCRYPTED" in armour[1] + armour[2]:
        return armour is not None
    try:
        blob = base64.b64decode(armour[2]) if armour[1] == b"OPENSSH " else b""
    except binascii.Error:
        return False
    magic = b"openssh-key-v1\0"
    return blob.startswith(magic) and not blob.startswith(magic + b"\0\0\0\x04none")


@cache
def public_half(path: Path) -> str | None:
    """Return the public key in a private key file as 'TYPE BASE64'; None if its format locks that too."""
    import asyncssh  # imported here because it takes a fifth of a second

    try:
        key = asyncssh.import_public_key(path.read_bytes())
    except ValueError:
        return None
    return " ".join(key.export_public_key().decode().split()[:2])


@cache
def opens(path: Path, passphrase: str | None) -> bool:
    """Return whether SSH can read a private key file, with its passphrase if it is locked, which is slow on purpose."""
    import asyncssh

    try:
        asyncssh.import_private_key(path.read_bytes(), passphrase)
    except ValueError:
        return False
    return True


def _host_key(value: str) -> str:
    """Return the key as 'TYPE BASE64' without its comment."""
    if RSA in value.split()[:2]:
        refuse(
            "is an RSA host key",
            "the command provider offers RSA only with SHA-1, which sshd rejects since OpenSSH 8.8",
            "write the host's ed25519 key: the output of `ssh-keyscan -t ed25519 ADDRESS` after the address",
        )
    return host_key(value)


def _address(value: str) -> str:
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        label = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
        if re.fullmatch(r"[A-Za-z0-9._-]*_[A-Za-z0-9._-]*", value):
            refuse("contains '_', which no host name may have (RFC 1123)", fix="write the machine's IP address")
        if len(value) > 253 or not re.fullmatch(rf"{label}(\.{label})*\.?", value):
            port = re.fullmatch(r"([A-Za-z0-9.-]+):([0-9]{1,5})", value)
            fix = f"write address: {port[1]} and port: {port[2]}" if port else None
            refuse("is neither an IP address nor a host name", fix=fix)
        if re.fullmatch(r"[0-9.]+", value):
            refuse("looks like an IPv4 address but is none")
        return value.lower().rstrip(".")
    if address.is_unspecified or address.is_multicast or int(address) == 2**32 - 1:
        refuse("is not the address of a machine")
    return str(address)


def _path(value: object, info: ValidationInfo) -> object:
    """Return the absolute path of a file that may not exist yet; a relative one starts at the stack config's folder."""
    if not isinstance(value, str) or not value or len(value) > 1000 or not value.isprintable():
        raise ValueError("not a path")
    try:
        return (info.context or {}).get("base_dir", Path()) / Path(value).expanduser()
    except RuntimeError:  # ~name of an unknown user
        refuse("names the home of an unknown user")


_FILE = Help("a path of a private key file", "write the path of the key, such as ~/.ssh/id_ed25519")
Login = Annotated[
    str,
    Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$"),
    Help("an account's name", "write root, or an account with sudo that the machine's image provides"),
]
KeyFile = Annotated[Path, BeforeValidator(_open_key_file), _FILE]
LockableKeyFile = Annotated[Path, BeforeValidator(_key_file), _FILE]
HostsFile = Annotated[Path, BeforeValidator(_path), Help("a path of a file", "write a path relative to the config")]
HostKey = Annotated[
    str,
    AfterValidator(_host_key),
    Help(
        "a public host key such as 'ssh-ed25519 AAAA...'",
        "run `ssh-keyscan -t ed25519 ADDRESS`, compare the key with /etc/ssh/ssh_host_ed25519_key.pub there, and write "
        "the part after the address",
        "an attacker in the network could pose as this host and get the cluster's keys",
    ),
]
Address = Annotated[
    str,
    AfterValidator(_address),
    Help("an IP address or host name", "write the address that you use with ssh"),
]


def check_one_key(login: Section, report: Report) -> None:
    """Report a log-in without a key, or with two."""
    file, agent = (getattr(login, name) for name in ("private_key_file", "agent"))
    if file is None and not agent:
        key_help = keys_of(type(login))["private_key_file"].help
        fix = f"{key_help.fix}, or write `agent: true` if an ssh-agent has it"
        report.add((login, "private_key_file"), "missing", key_help.breaks, fix)
    if file is not None and agent:
        problem, breaks = "is true, but private_key_file is also set", "the log-in can use only one of them"
        report.add((login, "agent"), problem, breaks, "delete one of the two")
