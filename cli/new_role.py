"""`make role NAME=x`: the skeleton of a role, which a machine can have as it is (docs/adding.md).

python -m cli.new_role NAME
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]

_SETTINGS = '''"""What the section `{name}` of the config says."""

from components.settings.section import Section, yes_no


class {Class}(Section):
    """TODO: one line for docs/config.md."""

    example: bool = yes_no("TODO: what it does; see components/settings/section.py for other kinds of key", False)
'''

_ROLE = '''"""TODO: what it gives a machine, in one line."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role | None:
    """None where the stack does not ask for it."""
    if settings.{name} is None:
        return None
    # All that a role can say is in components/roles/role.py.
    return Role("{name}", after=("machine",), values={{"{NAME}_EXAMPLE": settings.{name}.example}})
'''

_NODE = """#!/bin/bash
# TODO: what a node has after it. Runs twice, is cut off anywhere, and ends in the same state.
#
# {NAME}_EXAMPLE   true or false

{name}_node() {{
    note "{name}: example is ${NAME}_EXAMPLE"
}}
"""

_LEAVE = """#!/bin/bash
# TODO: the machine as it was. Runs on machines that have nothing of it too.

{name}_leave() {{ :; }}
"""


def write(name: str, project: Path = PROJECT) -> list[Path]:
    """Write the skeleton into a checkout; return the files that were written or changed.

    Raises ValueError for a name that no role can have, or that one has.
    """
    roles = project / "components" / "roles"
    if not re.fullmatch(r"[a-z][a-z0-9_]{1,30}", name):
        raise ValueError(f"{name!r} is not a name for a role: lower-case letters, digits and _, such as dashboards")
    if (roles / name).exists():
        raise ValueError(f"there is a role {name} already: components/roles/{name}")
    words = {"name": name, "NAME": name.upper(), "Class": "".join(part.capitalize() for part in name.split("_"))}
    texts = {"settings.py": _SETTINGS, "role.py": _ROLE, "node.sh": _NODE, "leave.sh": _LEAVE}
    written = []
    for file, text in texts.items():
        path = roles / name / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.format(**words), encoding="utf-8")
        written.append(path)
    order, settings = roles / "order.py", roles / "cluster_settings.py"
    _add(order, "from components.roles.role import", f"from components.roles.{name}.role import role as {name}\n")
    _add(order, "    foreign_cluster,\n)", f"    {name},\n")
    _add(
        settings,
        "from components.settings.cluster import",
        f"from components.roles.{name}.settings import {words['Class']}\n",
    )
    _add(
        settings,
        "    validation: Validation",
        f'    {name}: {words["Class"]} | None = key("TODO: what it is; left out, there is none", default=None)\n',
    )
    return [*written, order, settings]


def _add(path: Path, before: str, line: str) -> None:
    text = path.read_text(encoding="utf-8")
    if text.count(before) != 1:
        raise ValueError(f"{path.name} has no place before {before!r}; write {line!r} into it by hand")
    path.write_text(text.replace(before, line + before), encoding="utf-8")


def main() -> None:
    """Write the role that the only argument names."""
    try:
        files = write(sys.argv[1] if len(sys.argv) > 1 else "")
    except ValueError as error:
        sys.exit(f"tailrack: {error}")
    for path in files:
        print(path.relative_to(PROJECT))
    print("next: fill in what says TODO, then `make lint test-unit`; docs/adding.md has the whole list")


if __name__ == "__main__":
    main()
