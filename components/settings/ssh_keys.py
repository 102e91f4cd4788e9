"""Public SSH keys as values in the config, their formats, and a check that a key is complete."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from components.settings.types import refuse

# Parts of private keys: the first line, and the first bytes in base64 or DER.
_PRIVATE = re.compile(r"PRIVATE KEY|PuTTY-User-Key|Private-Lines|^\s*(b3BlbnNzaC1rZXk|MI[A-J][A-Za-z0-9+/])")
ED25519 = "ssh-ed25519"
KINDS = (
    ED25519,
    *(f"ecdsa-sha2-nistp{bits}" for bits in (256, 384, 521)),
    *(f"sk-{kind}@openssh.com" for kind in ("ssh-ed25519", "ecdsa-sha2-nistp256")),
)
# Only keys of people may be of this kind.
RSA = "ssh-rsa"
# The fewest bits that are safe today (NIST SP 800-131A), and the most that OpenSSH reads.
_RSA_BITS = range(2048, 16384 + 1)
_USERS_KINDS = (*KINDS, RSA)


def public_key(value: str, name: str, expected: str) -> str:
    """Return the key as 'TYPE BASE64' without its comment. Error messages use `name` and `expected`."""
    fields = value.split()
    if len(fields) < 2 or fields[0] not in KINDS:
        refuse(f"is not a {expected}")
    if problem := problem_of(fields[0], fields[1]):
        refuse(f"is a {name} whose base64 part {problem}")
    return f"{fields[0]} {fields[1]}"


def host_key(value: str) -> str:
    """Return a machine's key as 'TYPE BASE64' without its comment."""
    fields = value.split()
    if len(fields) > 2 and fields[0] not in KINDS and fields[1] in KINDS:
        fix = "remove the first word, so that the key starts with its type"
        refuse("starts with a host's name or address", fix=fix)
    return public_key(value, "host key", "public host key")


HostKey = Annotated[str, AfterValidator(host_key)]


def users_key(value: str) -> str:
    """Return a user's key as 'TYPE BASE64 COMMENT', or without a comment."""
    words = value.split()
    if _PRIVATE.search(value):
        fix = "remove it, create another key pair if others may have seen it, and write the line of its .pub file"
        refuse("is a private key", "everyone who reads the config could log in as this user", fix, hide=True)
    if not value.strip().isprintable():
        refuse("has a line break or control character", fix="write each key as one line of the list", hide=True)
    # A comment after a key may contain any word.
    if words[:1] and words[0] not in _USERS_KINDS and any(word in _USERS_KINDS for word in words):
        breaks = "tailrack supports no options, and the key would open a login without them"
        fix = "write the key without them, or leave it out and put the line into the user's ~/.ssh/authorized_keys"
        refuse("has options such as command= or from= before its type", breaks, fix)
    if words[:1] == ["ssh-dss"]:
        refuse("is a DSA key", "sshd accepts no DSA keys")
    if value.endswith(".pub"):
        refuse("is the name of a file", fix="write the line that is in the file")
    if len(words) < 2 or words[0] not in _USERS_KINDS:
        # It may be a part of a private key.
        refuse(f"is not a public SSH key, which is {', '.join(KINDS)} or {RSA}, and a base64 part", hide=True)
    if problem := problem_of(words[0], words[1]):
        refuse(f"is a key whose base64 part {problem}")
    return " ".join(words)


UsersKey = Annotated[str, Field(max_length=8192), AfterValidator(users_key)]


def problem_of(kind: str, text: str) -> str:
    """Return what is wrong with the base64 part of a key of this kind; empty if nothing is."""
    # Their import takes a seventh of a second.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    try:
        key = load_ssh_public_key(f"{kind} {text}".encode())
    except (ValueError, NotImplementedError, UnsupportedAlgorithm):
        return "is damaged, cut off or of another type"
    bits = getattr(key, "key_size", 0)
    if kind == RSA and bits not in _RSA_BITS:
        return f"has {bits} bits, {'which is too weak' if bits < _RSA_BITS.start else 'more than sshd reads'}"
    return ""
