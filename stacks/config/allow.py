"""The key `allow`: findings of cli/checks that a change may contain."""

from typing import Annotated

from pydantic import AfterValidator, Field

from components.settings.problems import suggest
from components.settings.section import Help
from components.settings.types import refuse

SSH_OPEN, KEY_ENDLESS, EXPORT_WIDE = "ssh-open", "key-endless", "export-wide"
FLOOR_REMOVED, FLOOR_LOWERED, HEAD_REPLACED = "floor-removed", "floor-lowered", "head-replaced"
FINDINGS = (SSH_OPEN, KEY_ENDLESS, EXPORT_WIDE, FLOOR_REMOVED, FLOOR_LOWERED, HEAD_REPLACED)


def _finding(value: str) -> str:
    if value not in FINDINGS:
        refuse("is not the name of a finding", fix=suggest(value, FINDINGS))
    return value


Allow = Annotated[
    tuple[Annotated[str, AfterValidator(_finding)], ...],
    Field(
        description="Changes that `make preview` and `make up` refuse unless you list them here: "
        f"{', '.join(FINDINGS)} ([pull-requests.md](pull-requests.md#what-is-asked-for-by-name))."
    ),
    Help("a list of findings", "write [floor-removed], or leave it out"),
]
