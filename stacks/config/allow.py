"""What a change has to be asked for by name: the findings of cli/checks, which the key `allow` lets pass."""

from typing import Annotated, Any

from pydantic import AfterValidator

from components.settings.draft import meant
from components.settings.section import key
from components.settings.types import refuse

SSH_OPEN, KEY_ENDLESS, EXPORT_WIDE = "ssh-open", "key-endless", "export-wide"
FLOOR_REMOVED, FLOOR_LOWERED, HEAD_REPLACED = "floor-removed", "floor-lowered", "head-replaced"
FINDINGS = (SSH_OPEN, KEY_ENDLESS, EXPORT_WIDE, FLOOR_REMOVED, FLOOR_LOWERED, HEAD_REPLACED)


def _finding(value: str) -> str:
    if value not in FINDINGS:
        refuse("is not the name of a finding", fix=meant(value, FINDINGS))
    return value


FindingName = Annotated[str, AfterValidator(_finding)]


def allow_key() -> Any:
    """The key `allow` of a stack's config, whatever kind of stack it is."""
    return key(
        f"what `make preview` and `make up` refuse unless it is asked for here by name: {', '.join(FINDINGS)} "
        "([pull-requests.md](pull-requests.md#what-is-asked-for-by-name))",
        wants="a list of findings",
        breaks="what it was to allow would be refused",
        fix="write [floor-removed], or leave it out",
        default=(),
    )
