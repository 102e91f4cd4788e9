"""Public SSH keys as values in the config."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from components.settings.public_key import KINDS, RSA, check_key, check_users_key
from components.settings.types import refuse


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


# Parts of private keys: the first line, and the first bytes in base64 or DER.
_PRIVATE = re.compile(r"PRIVATE KEY|PuTTY-User-Key|Private-Lines|^\s*(b3BlbnNzaC1rZXk|MI[A-J][A-Za-z0-9+/])")
_USERS_KINDS = (*KINDS, RSA)


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
