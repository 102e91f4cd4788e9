"""How a machine is reached by SSH, as kinds of value: address, private key file, pinned host key."""

import base64
import binascii
import ipaddress
import re
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from components.settings.problems import shown
from components.settings.public_key import KINDS
from components.settings.ssh_keys import host_key
from components.settings.types import refuse

RSA = "ssh-rsa"
LONGEST_KEY = 65536  # bytes of a file
_ARMOUR = re.compile(rb"-----BEGIN ([A-Z0-9 ]*)PRIVATE KEY-----(.*?)-----END", re.DOTALL)


def _key_file(value: object, info: ValidationInfo) -> Path:
    """The key's absolute path; a relative one starts at the folder of the stack config."""
    if not isinstance(value, str):
        raise ValueError("not a path")
    try:
        path = Path(value).expanduser()
        path = (info.context or {}).get("base_dir", Path()) / path  # an absolute path stays as it is
        if not path.is_file():
            refuse(f"(that is {shown(path)}) is not a file on this machine")
        with path.open("rb") as file:
            head = file.read(LONGEST_KEY + 1)
    except (OSError, RuntimeError) as error:  # RuntimeError: ~name of nobody known
        refuse(f"cannot be read ({type(error).__name__})")
    if len(head) > LONGEST_KEY:
        refuse(f"(that is {shown(path)}) is longer than 64 KiB, and no private key is")
    armour = _ARMOUR.search(head)
    if armour is None:
        public = head.startswith(tuple(name.encode() + b" " for name in (*KINDS, RSA)))
        refuse(f"(that is {shown(path)}) holds {'the public half of a key' if public else 'no private key'}")
    try:
        head.decode()
    except UnicodeDecodeError:
        refuse(f"(that is {shown(path)}) has bytes in it that are not UTF-8", fix="leave the key alone in the file")
    if armour[1] == b"ENCRYPTED ":
        refuse(
            f"(that is {shown(path)}) is locked with a passphrase, in a form (PKCS#8)",
            "the command provider cannot open it",
            "write it anew in OpenSSH's own form: ssh-keygen -p -f FILE",
        )
    return Path(path)


def _open_key_file(value: object, info: ValidationInfo) -> Path:
    path = _key_file(value, info)
    if is_locked(path):
        refuse(
            f"(that is {shown(path)}) is locked with a passphrase",
            "nobody is there to type it when the program logs in",
            "make a key without one for this cluster: ssh-keygen -t ed25519 -N '' -f FILE",
        )
    return path


@cache
def is_locked(path: Path) -> bool:
    """Whether a private key file needs a passphrase."""
    armour = _ARMOUR.search(path.read_bytes())
    return armour is not None and _is_encrypted(armour[1], armour[2])


@cache
def public_half(path: Path) -> str | None:
    """The base64 part of the public key that a private key file in OpenSSH's form has, locked or not; None elsewhere.

    The form has it in front of what may be locked (openssh's PROTOCOL.key).
    """
    armour = _ARMOUR.search(path.read_bytes())
    try:
        blob = base64.b64decode(armour[2]) if armour else b""
    except binascii.Error:
        return None
    magic, at = b"openssh-key-v1\0", 15
    fields: list[bytes] = []
    for field in range(4 if blob.startswith(magic) else 0):  # cipher, KDF, its options; the number of keys; the key
        at += 4 if field == 3 else 0
        length = int.from_bytes(blob[at : at + 4])
        fields.append(blob[at + 4 : at + 4 + length])
        at += 4 + length
    return base64.b64encode(fields[3]).decode() if fields else None


@cache
def opens(path: Path, passphrase: str) -> bool:
    """Whether a passphrase is that of a locked private key file. Slow on purpose of its format."""
    import asyncssh  # a fifth of a second that no other config needs

    try:
        asyncssh.import_private_key(path.read_bytes(), passphrase)
    except ValueError:
        return False
    return True


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


def _host_key(value: str) -> str:
    """'TYPE BASE64' with any comment dropped."""
    if RSA in value.split()[:2]:
        refuse(
            "is an RSA host key",
            "the command provider offers RSA with SHA-1 alone, which sshd refuses since OpenSSH 8.8",
            "write the host's ed25519 key, as `ssh-keyscan -t ed25519 ADDRESS` prints it after the address",
        )
    return host_key(value)


def _address(value: str) -> str:
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        label = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
        if re.fullmatch(r"[A-Za-z0-9._-]*_[A-Za-z0-9._-]*", value):
            refuse("has '_' in it, which no host name has (RFC 1123)", fix="write the machine's IP address")
        if len(value) > 253 or not re.fullmatch(rf"{label}(\.{label})*\.?", value):
            refuse("is neither an IP address nor a host name")
        if re.fullmatch(r"[0-9.]+", value):
            refuse("has the look of an IPv4 address and is none")
        return value.lower().rstrip(".")
    if address.is_unspecified or address.is_multicast or int(address) == 2**32 - 1:
        refuse("is the address of no machine")
    return str(address)


def _path(value: object, info: ValidationInfo) -> object:
    """The absolute path of a file that may be made later; a relative one starts at the folder of the stack config."""
    if not isinstance(value, str) or not value or len(value) > 1000 or not value.isprintable():
        raise ValueError("not a path")
    try:
        return (info.context or {}).get("base_dir", Path()) / Path(value).expanduser()
    except RuntimeError:  # ~name of nobody known
        refuse("has the home of nobody known")


Login = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
KeyFile = Annotated[Path, BeforeValidator(_open_key_file)]
LockableKeyFile = Annotated[Path, BeforeValidator(_key_file)]
HostsFile = Annotated[Path, BeforeValidator(_path)]
HostKey = Annotated[str, AfterValidator(_host_key)]
Address = Annotated[str, AfterValidator(_address)]
