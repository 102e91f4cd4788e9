"""The key `allow`: findings of cli/checks that a change may contain."""

from typing import Annotated, Any

from pydantic import AfterValidator

from components.settings.problems import suggest
from components.settings.section import key
from components.settings.types import refuse

SSH_OPEN, KEY_ENDLESS, EXPORT_WIDE = "ssh-open", "key-endless", "export-wide"
FLOOR_REMOVED, FLOOR_LOWERED, HEAD_REPLACED = "floor-removed", "floor-lowered", "head-replaced"
FINDINGS = (SSH_OPEN, KEY_ENDLESS, EXPORT_WIDE, FLOOR_REMOVED, FLOOR_LOWERED, HEAD_REPLACED)


def _finding(value: str) -> str:
    if value not in FINDINGS:
        refuse("is not the name of a finding", fix=suggest(value, FINDINGS))
    return value


FindingName = Annotated[str, AfterValidator(_finding)]


def allow_key() -> Any:
    """Return the key `allow` of a stack's config, for every kind of stack."""
    return key(
        f"changes that `make preview` and `make up` refuse unless you list them here: {', '.join(FINDINGS)} "
        "([pull-requests.md](pull-requests.md#what-is-asked-for-by-name))",
        wants="a list of findings",
        breaks="the change would be refused",
        fix="write [floor-removed], or leave it out",
        default=(),
    )
