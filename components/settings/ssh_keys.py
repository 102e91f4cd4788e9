"""Public SSH keys as values in the config, their formats, and a check that a key is complete."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from components.settings.types import refuse

# Parts of private keys: the first line, and the first bytes in base64 or DER.
_PRIVATE = re.compile(r"PRIVATE KEY|PuTTY-User-Key|Private-Lines|^\s*(b3BlbnNzaC1rZXk|MI[A-J][A-Za-z0-9+/])")
Fields = list[bytes]
ED25519 = "ssh-ed25519"
# Only keys of people may be of this kind.
RSA = "ssh-rsa"
# The fewest bits that are safe today (NIST SP 800-131A), and the most that OpenSSH reads.
_RSA_BITS = range(2048, 16384 + 1)


def public_key(value: str, name: str, expected: str) -> str:
    """Return the key as 'TYPE BASE64' without its comment. Error messages use `name` and `expected`."""
    fields = value.split()
    if len(fields) < 2 or fields[0] not in KINDS:
        refuse(f"is not a {expected}")
    try:
        check_key(fields[0], fields[1])
    except ValueError as error:
        refuse(f"is a {name} whose base64 part {error}")
    return f"{fields[0]} {fields[1]}"


def host_key(value: str) -> str:
    """Return a machine's key as 'TYPE BASE64' without its comment."""
    fields = value.split()
    if len(fields) > 2 and fields[0] not in KINDS and fields[1] in KINDS:
        refuse(
            "starts with a host's name or address", fix="remove the first word, so that the key starts with its type"
        )
    return public_key(value, "host key", "public host key")


HostKey = Annotated[str, AfterValidator(host_key)]


def users_key(value: str) -> str:
    """Return a user's key as 'TYPE BASE64 COMMENT', or without a comment."""
    words = value.split()
    if _PRIVATE.search(value):
        refuse(
            "is a private key",
            "everyone who reads the config could log in as this user",
            "remove it, create another key pair if others may have seen it, and write the line of its .pub file",
            hide=True,
        )
    if not value.strip().isprintable():
        refuse("has a line break or control character", fix="write each key as one line of the list", hide=True)
    # A comment after a key may contain any word.
    if words[:1] and words[0] not in _USERS_KINDS and any(word in _USERS_KINDS for word in words):
        refuse(
            "has options such as command= or from= before its type",
            "tailrack supports no options, and the key would open a login without them",
            "write the key without them, or leave it out and put the line into the user's ~/.ssh/authorized_keys",
        )
    if words[:1] == ["ssh-dss"]:
        refuse("is a DSA key", "sshd accepts no DSA keys")
    if len(words) < 2 or words[0] not in _USERS_KINDS:
        # It may be a part of a private key.
        refuse(f"is not a public SSH key, which is {', '.join(KINDS)} or {RSA}, and a base64 part", hide=True)
    try:
        check_users_key(words[0], words[1])
    except ValueError as error:
        refuse(f"is a key whose base64 part {error}")
    return " ".join(words)


UsersKey = Annotated[str, Field(max_length=8192), AfterValidator(users_key)]


def _point(curve: bytes, size: int) -> Callable[[Fields], bool]:
    """Return a check for a curve's name and an uncompressed point of two `size`-byte coordinates (RFC 5656, 3.1)."""
    return lambda fields: fields[:1] == [curve] and [(len(q), q[:1]) for q in fields[1:]] == [(2 * size + 1, b"\4")]


def _ed25519(fields: Fields) -> bool:
    return [*map(len, fields)] == [32]  # RFC 8709, 4


def _in_hardware(key: Callable[[Fields], bool]) -> Callable[[Fields], bool]:
    """Return a check for a key and its application (openssh's PROTOCOL.u2f)."""
    return lambda fields: len(fields) > 1 and key(fields[:-1]) and bool(fields[-1])


# The fields after the type, for each kind of key.
_KEY_FIELDS: Mapping[str, Callable[[Fields], bool]] = {
    ED25519: _ed25519,
    "ecdsa-sha2-nistp256": _point(b"nistp256", 32),
    "ecdsa-sha2-nistp384": _point(b"nistp384", 48),
    "ecdsa-sha2-nistp521": _point(b"nistp521", 66),
    "sk-ssh-ed25519@openssh.com": _in_hardware(_ed25519),
    "sk-ecdsa-sha2-nistp256@openssh.com": _in_hardware(_point(b"nistp256", 32)),
}


KINDS = tuple(_KEY_FIELDS)


_USERS_KINDS = (*KINDS, RSA)


def check_key(kind: str, text: str) -> None:
    """Raise ValueError with the problem if `text` is not the base64 part of a key of this kind.

    The base64 part repeats the kind (RFC 4253, 6.6).
    """
    if not _KEY_FIELDS[kind](_fields_of(kind, text)):
        raise ValueError("has the wrong length or an extra field")


def check_users_key(kind: str, text: str) -> None:
    """Like `check_key`, for a key with which a person logs in: it may be a long RSA key."""
    if kind != RSA:
        check_key(kind, text)
        return
    fields = _fields_of(kind, text)
    if len(fields) != 2 or any(not field or field[0] & 0x80 for field in fields):
        raise ValueError("has the wrong length or an extra field")
    exponent, modulus = (int.from_bytes(field) for field in fields)  # RFC 4253, 6.6
    if exponent < 3 or exponent % 2 == 0:
        raise ValueError("has an exponent that makes it no key")
    if (bits := modulus.bit_length()) < _RSA_BITS.start:
        raise ValueError(f"has {bits} bits, which is too weak")
    if bits not in _RSA_BITS:
        raise ValueError(f"has {bits} bits, more than sshd reads")


def _fields_of(kind: str, text: str) -> Fields:
    """Return the fields after the kind. Raises ValueError."""
    try:
        blob = base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("is damaged") from None
    fields = _fields(blob)
    if len(fields) < 2 or fields[0] != kind.encode():
        raise ValueError("is cut off or of another type")
    return fields[1:]


def _fields(blob: bytes) -> Fields:
    """Return the length-prefixed strings of a key; none if one is cut off (RFC 4251, 5)."""
    fields, offset = [], 0
    while offset < len(blob):
        end = offset + 4 + int.from_bytes(blob[offset : offset + 4])
        if end > len(blob) or offset + 4 > len(blob):
            return []
        fields.append(blob[offset + 4 : end])
        offset = end
    return fields
