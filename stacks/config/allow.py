"""The key `allow`: findings of cli/checks that a change may contain."""

from typing import Annotated, Literal, get_args

from pydantic import Field

from components.settings.section import Help

_Finding = Literal["ssh-open", "key-endless", "export-wide", "floor-removed", "floor-lowered", "head-replaced"]
FINDINGS = SSH_OPEN, KEY_ENDLESS, EXPORT_WIDE, FLOOR_REMOVED, FLOOR_LOWERED, HEAD_REPLACED = get_args(_Finding)
Allow = Annotated[
    tuple[_Finding, ...],
    Field(
        description="Changes that `make preview` and `make up` refuse unless you list them here: "
        f"{', '.join(FINDINGS)} ([pull-requests.md](pull-requests.md#what-is-asked-for-by-name))."
    ),
    Help("a list of findings", f"write some of [{', '.join(FINDINGS)}], or leave it out"),
]
