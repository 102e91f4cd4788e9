"""Copy the scripts of a machine's steps once, so that a step sends only its values.

The CLI writes the whole state before and after each step, and the state has each input twice. For an archive it keeps
only the path and the hash (docs/decisions/0013-scripts-by-digest.md). It needs SFTP.

The files are in the home of the steps' login, which may use sudo anyway. That login reads them; root opens none. Old
ones stay, because steps that did not run again need them to undo. There are few, since each costs round trips: the
program, compressed; start.sh, which starts it; and one file with a line for each script, which begins with its digest.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import pulumi

from components.host import Machine
from components.roles.program import program
from components.steps.command_line import START, START_TEXT
from components.steps.composition import Script
from components.steps.label import StepLabel
from components.steps.resource import COPY, CommandResource, Options
from components.steps.step import connection_inputs, machine_identity
from components.steps.values import combine

# The operator's copies: a folder for each set of scripts.
FOLDER = Path(__file__).parents[2] / ".tailrack" / "scripts"


def deliver(
    name: str,
    machine: Machine,
    scripts: Sequence[Script],
    *,
    label: str,
    parent: pulumi.Resource,
    repair: str,
    depends_on: Sequence[pulumi.Resource] = (),
) -> list[pulumi.Resource]:
    """Copy scripts to a machine; return the resources that its first step waits for.

    A local machine needs no copy: each step brings its script.

    name     the resource's name
    label    the label that people see
    repair   a change of this text copies the scripts again
    """
    connection = machine.connection
    if connection is None:
        return list(depends_on)
    into = PurePosixPath(machine.scripts_folder)
    # The machine and the home on it.
    home = {f"{index}": value for index, value in enumerate([*machine_identity(connection), connection.user])}

    def digest(values: Mapping[str, Any]) -> str:
        return hashlib.sha256(json.dumps([*(values[key] for key in home), repair]).encode()).hexdigest()

    inputs = {
        "connection": connection_inputs(connection),
        "source": pulumi.FileArchive(str(folder_of(tuple(scripts), into.name))),
        "remotePath": str(into.parent),
        # The label for people is apart: the digest of a new machine is unknown in a preview. Both replace the resource.
        "triggers": [
            combine({"": machine.name}, lambda values: StepLabel(name, values[""], label).on("")),
            combine(home, digest),
        ],
    }
    options = Options(parent=parent, depends_on=depends_on, deleted_with=machine.deleted_with)
    return [CommandResource(COPY, name, inputs, options)]


# Thousands of nodes have the same scripts.
@lru_cache
def folder_of(scripts: tuple[Script, ...], name: str) -> Path:
    """Return a local folder with the files for these scripts. Write those that are missing."""
    plans = "".join(sorted({f"{script.digest} {script.file}\n" for script in scripts})).encode()
    contents = {f"plans-{hashlib.sha256(plans).hexdigest()[:16]}": plans}
    contents |= {program().digest: program().compressed, START: START_TEXT.encode()}
    set_digest = hashlib.sha256("".join(sorted(contents)).encode()).hexdigest()
    folder = FOLDER / set_digest / name
    folder.mkdir(parents=True, exist_ok=True)
    for file_name, content in contents.items():
        path = folder / file_name
        if not path.is_file() or path.read_bytes() != content:
            # Another run may be reading the file.
            with tempfile.NamedTemporaryFile("wb", dir=folder.parent, delete=False) as file:
                file.write(content)
            Path(file.name).replace(path)
    return folder
