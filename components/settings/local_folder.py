"""A folder on a local disk of each machine, which a role creates and uses as root."""

import re
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field

from components.settings.types import refuse, word_set

# Usual mount points of such disks, besides folders below _AROUND.
_DISKS = word_set("data ephemeral local localdisk nvme raid scratch")
_AROUND = ("/var/lib", "/var/cache", "/mnt", "/opt", "/srv")

PLACES = f"a folder below {', '.join(_AROUND)}, or /{', /'.join(sorted(_DISKS))} or a folder in it"
"""The allowed folders, for the help of a key."""


def _local(value: str) -> str:
    folder = PurePosixPath(value)
    if not re.fullmatch(r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+", value):
        refuse("is not an absolute path of plain letters, digits, '.', '_' and '-'")
    if folder.parts[1] not in _DISKS and not any(
        folder != PurePosixPath(a) and folder.is_relative_to(a) for a in _AROUND
    ):
        refuse("may be a folder of the system", "everyone who runs jobs could put files there")
    return str(folder)


LocalFolder = Annotated[str, Field(max_length=200), AfterValidator(_local)]
