"""Public SSH keys as values in the config."""

from typing import Annotated

from pydantic import AfterValidator

from components.settings.public_key import KINDS, check_key
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
