"""A folder on a disk of each machine's own, which a role makes and uses as root."""

import re
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field

from components.settings.types import refuse, words

# Where such a disk may be mounted, besides folders in these.
_DISKS = words("data ephemeral local localdisk nvme raid scratch")
_AROUND = ("/var/lib", "/var/cache", "/mnt", "/opt", "/srv")

PLACES = f"a folder below {', '.join(_AROUND)}, or /{', /'.join(sorted(_DISKS))} or a folder in it"
"""What such a folder may be, for the words of a key."""


def _local(value: str) -> str:
    folder = PurePosixPath(value)
    if not re.fullmatch(r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+", value):
        refuse("is not an absolute path of plain letters, digits, '.', '_' and '-'")
    if folder.parts[1] not in _DISKS and not any(
        folder != PurePosixPath(a) and folder.is_relative_to(a) for a in _AROUND
    ):
        refuse("may be a folder of the system itself", "everybody who runs jobs could put files there")
    return str(folder)


LocalFolder = Annotated[str, Field(max_length=200), AfterValidator(_local)]
