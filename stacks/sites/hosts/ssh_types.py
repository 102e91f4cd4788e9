"""How a machine is reached by SSH, as kinds of value: address, private key file, pinned host key."""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from components.settings.problems import shown
from components.settings.types import refuse

RSA = "ssh-rsa"
Fields = list[bytes]


def _point(curve: bytes, size: int) -> Callable[[Fields], bool]:
    """A curve's name and an uncompressed point on it, of two coordinates of `size` bytes (RFC 5656, 3.1)."""
    return lambda fields: fields[:1] == [curve] and [(len(q), q[:1]) for q in fields[1:]] == [(2 * size + 1, b"\4")]


def _ed25519(fields: Fields) -> bool:
    return [*map(len, fields)] == [32]  # RFC 8709, 4


def _in_hardware(key: Callable[[Fields], bool]) -> Callable[[Fields], bool]:
    """A key, and the application that it is for (openssh's PROTOCOL.u2f)."""
    return lambda fields: len(fields) > 1 and key(fields[:-1]) and bool(fields[-1])


# What comes after the type in each kind of key.
_KEY_FIELDS: Mapping[str, Callable[[Fields], bool]] = {
    "ssh-ed25519": _ed25519,
    "ecdsa-sha2-nistp256": _point(b"nistp256", 32),
    "ecdsa-sha2-nistp384": _point(b"nistp384", 48),
    "ecdsa-sha2-nistp521": _point(b"nistp521", 66),
    "sk-ssh-ed25519@openssh.com": _in_hardware(_ed25519),
    "sk-ecdsa-sha2-nistp256@openssh.com": _in_hardware(_point(b"nistp256", 32)),
}
HOST_KEY_TYPES = tuple(_KEY_FIELDS)


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
        public = head.startswith(tuple(name.encode() + b" " for name in (*HOST_KEY_TYPES, RSA)))
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


def _host_key(value: str) -> str:
    """'TYPE BASE64' with any comment dropped; the type is also written inside the base64 (RFC 4253, 6.6)."""
    words = value.split()
    if RSA in words[:2]:
        refuse(
            "is an RSA host key",
            "the command provider offers RSA with SHA-1 alone, which sshd refuses since OpenSSH 8.8",
            "write the host's ed25519 key, as `ssh-keyscan -t ed25519 ADDRESS` prints it after the address",
        )
    if len(words) > 2 and words[0] not in HOST_KEY_TYPES and words[1] in HOST_KEY_TYPES:
        refuse("starts with a host's name or address", fix="leave out its first word; the key starts at its type")
    if len(words) < 2 or words[0] not in HOST_KEY_TYPES:
        refuse("is not a public host key")
    kind = words[0].encode()
    try:
        blob = base64.b64decode(words[1], validate=True)
    except ValueError:
        refuse("is a host key whose base64 part is damaged")
    fields = _fields(blob)
    if not fields or fields[0] != kind or len(fields) < 2:
        refuse("is a host key whose base64 part is cut off or of another type")
    if not _KEY_FIELDS[words[0]](fields[1:]):
        refuse("is a host key whose base64 part has the wrong length, or something that belongs to no key")
    return f"{words[0]} {words[1]}"


def _fields(blob: bytes) -> Fields:
    """The strings, each after its length, that a key is made of; none where one of them is cut off (RFC 4251, 5)."""
    found, at = [], 0
    while at < len(blob):
        end = at + 4 + int.from_bytes(blob[at : at + 4])
        if end > len(blob) or at + 4 > len(blob):
            return []
        found.append(blob[at + 4 : end])
        at = end
    return found


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


def _path(value: object, info: ValidationInfo) -> object:
    """The absolute path of a file that may be made later; a relative one starts at the folder of the stack config."""
    if not isinstance(value, str) or not value or len(value) > 1000 or "\0" in value:
        raise ValueError("not a path")
    try:
        return (info.context or {}).get("base_dir", Path()) / Path(value).expanduser()
    except RuntimeError:  # ~name of nobody known
        refuse("has the home of nobody known")


Login = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
KeyFile = Annotated[Path, BeforeValidator(_key_file)]
HostsFile = Annotated[Path, BeforeValidator(_path)]
HostKey = Annotated[str, AfterValidator(_host_key)]
Address = Annotated[str, AfterValidator(_address)]
