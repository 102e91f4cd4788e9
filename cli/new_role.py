"""`make role NAME=x`: write the skeleton of a role, which already runs (CONTRIBUTING.md).

python -m cli.new_role NAME
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]

_SETTINGS = '''"""Section `{name}` of the config."""

from components.settings.section import Section, key


class {Class}(Section):
    """TODO: one line for docs/config.md."""

    example: bool = False
    """TODO: the effect."""
'''

_ROLE = '''"""TODO: the role's purpose, in one line."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role | None:
    """Return the role; None without its section."""
    if settings.{name} is None:
        return None
    # components/roles/role.py documents all fields.
    return Role("{name}", after=("machine",), values={{"example": settings.{name}.example}})
'''

_HOST = '''"""TODO: what this gives a machine, and how it leaves."""

from __future__ import annotations

from components.node.log import note
from components.node.step.step import Step


def node(step: Step, {name}_example: bool) -> None:
    """TODO: what it does. It must converge when run twice or after an interruption."""
    note(f"{name}: example is {{{name}_example}}")


def leave(step: Step) -> None:
    """TODO: what it gives back. It also runs on machines without the role."""
'''


def write(name: str, project: Path = PROJECT) -> list[Path]:
    """Write the skeleton into a checkout; return the files written or changed.

    Raises ValueError for an invalid name or an existing role.
    """
    roles = project / "components" / "roles"
    if not re.fullmatch(r"[a-z][a-z0-9_]{1,30}", name):
        raise ValueError(f"{name!r} is no valid name of a role; use lower-case letters, digits and _, as in dashboards")
    if (roles / name).exists():
        raise ValueError(f"role {name} exists already: components/roles/{name}")
    names = {"name": name, "Class": "".join(part.capitalize() for part in name.split("_"))}
    texts = {"settings.py": _SETTINGS, "role.py": _ROLE, "host.py": _HOST}
    written = []
    for file, text in texts.items():
        path = roles / name / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.format(**names), encoding="utf-8")
        written.append(path)
    order, settings = roles / "order.py", roles / "cluster_settings.py"
    _add(order, "from components.roles.role import", f"from components.roles.{name}.role import role as {name}\n")
    _add(order, "    foreign_cluster,\n)", f"    {name},\n")
    _add(
        settings,
        "from components.settings.cluster import",
        f"from components.roles.{name}.settings import {names['Class']}\n",
    )
    _add(
        settings,
        "    validation: Validation",
        f'    {name}: {names["Class"]} | None = None\n    """TODO: description; left out, the role is off."""\n',
    )
    return [*written, order, settings]


def _add(path: Path, before: str, line: str) -> None:
    text = path.read_text(encoding="utf-8")
    if text.count(before) != 1:
        raise ValueError(f"{path.name} does not contain {before!r} exactly once; add {line!r} yourself")
    path.write_text(text.replace(before, line + before), encoding="utf-8")


def main() -> None:
    """Write the role named by the only argument."""
    try:
        files = write(sys.argv[1] if len(sys.argv) > 1 else "")
    except ValueError as error:
        sys.exit(f"tailrack: {error}")
    for path in files:
        print(path.relative_to(PROJECT))
    print("next: replace each TODO, then run `make lint test-unit`; CONTRIBUTING.md lists all steps")


if __name__ == "__main__":
    main()
