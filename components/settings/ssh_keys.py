"""Public keys of SSH as a kind of value: what is accepted, and what is said of the rest."""

from typing import Annotated

from pydantic import AfterValidator

from components.settings.public_key import KINDS, check_key
from components.settings.types import refuse


def public_key(value: str, name: str, expected: str) -> str:
    """'TYPE BASE64' with any comment dropped; `name` and `expected` are its words in a refusal."""
    words = value.split()
    if len(words) < 2 or words[0] not in KINDS:
        refuse(f"is not a {expected}")
    try:
        check_key(words[0], words[1])
    except ValueError as error:
        refuse(f"is a {name} whose base64 part {error}")
    return f"{words[0]} {words[1]}"


def host_key(value: str) -> str:
    """'TYPE BASE64' of a machine, with any comment dropped."""
    words = value.split()
    if len(words) > 2 and words[0] not in KINDS and words[1] in KINDS:
        refuse("starts with a host's name or address", fix="leave out its first word; the key starts at its type")
    return public_key(value, "host key", "public host key")


HostKey = Annotated[str, AfterValidator(host_key)]
