"""Formats of public SSH keys, and a check that a key is complete."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping

Fields = list[bytes]

ED25519 = "ssh-ed25519"


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
# Only keys of people may be of this kind.
RSA = "ssh-rsa"
# The fewest bits that are safe today (NIST SP 800-131A), and the most that OpenSSH reads.
_RSA_BITS = range(2048, 16384 + 1)


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
