"""What a change has to be asked for by name: the findings of driver/checks, which the key `allow` lets pass."""

from typing import Annotated

from pydantic import AfterValidator

from components.settings.draft import meant
from components.settings.types import refuse

SSH_OPEN, KEY_ENDLESS, EXPORT_WIDE = "ssh-open", "key-endless", "export-wide"
FLOOR_REMOVED, FLOOR_LOWERED, HEAD_REPLACED = "floor-removed", "floor-lowered", "head-replaced"
FINDINGS = (SSH_OPEN, KEY_ENDLESS, EXPORT_WIDE, FLOOR_REMOVED, FLOOR_LOWERED, HEAD_REPLACED)


def _finding(value: str) -> str:
    if value not in FINDINGS:
        refuse("is not the name of a finding", fix=meant(value, FINDINGS))
    return value


FindingName = Annotated[str, AfterValidator(_finding)]
