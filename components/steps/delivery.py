"""The scripts of a machine's steps, put there once, so that a step sends its values alone.

The CLI writes the whole state before and after each step, and an input is in it twice. Of an archive it keeps the path
and the hash, whatever its size (docs/decisions/0013-scripts-by-digest.md).

On the machine a script lies in a file that is named by its digest, in the home of the login that steps run with, who
may be root by sudo anyway. That login reads it there; root does not open it. One that another takes the place of stays:
steps that were not run again still undo by it.
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
from components.steps.command import COPY, CommandResource, Options
from components.steps.composition import Script
from components.steps.label import StepLabel
from components.steps.step import connection_words, machine_words
from components.steps.values import combine

# Where they lie on the way, a folder for each set of them.
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
    """Put scripts on a machine; returns what its first step waits for. A local machine has them with each step.

    name     the resource's name
    label    what it does, in a few words for people
    repair   another text copies them again
    """
    connection = machine.connection
    if connection is None:
        return list(depends_on)
    into = PurePosixPath(machine.scripts_folder)
    # Which home it is, of which machine.
    home = {f"{index}": word for index, word in enumerate([*machine_words(connection), connection.user])}

    def place(of: Mapping[str, Any]) -> str:
        digest = hashlib.sha256(json.dumps([*(of[key] for key in home), repair]).encode()).hexdigest()
        # The label says to people what it is, as that of a step does. With another digest it is made anew.
        return StepLabel(name, of["machine"], label).on_trigger(digest)

    inputs = {
        "connection": connection_words(connection),
        "source": pulumi.FileArchive(str(folder_of(tuple(scripts), into.name))),
        "remotePath": str(into.parent),
        "triggers": [combine({"machine": machine.name, **home}, place)],
    }
    options = Options(parent=parent, depends_on=depends_on, deleted_with=machine.deleted_with)
    return [CommandResource(COPY, name, inputs, options)]


# Of thousands of nodes each has the same scripts.
@lru_cache
def folder_of(scripts: tuple[Script, ...], name: str) -> Path:
    """Return a folder of the operator's with a file for each script, its digest its name. Writes what is not there."""
    by_digest = {script.digest: script for script in scripts}
    of_all = hashlib.sha256("".join(sorted(by_digest)).encode()).hexdigest()
    folder = FOLDER / of_all / name
    folder.mkdir(parents=True, exist_ok=True)
    for digest, script in by_digest.items():
        path = folder / digest
        if not path.is_file() or path.read_text(encoding="utf-8") != script.file:
            # Another run may be reading it.
            with tempfile.NamedTemporaryFile("w", dir=folder.parent, delete=False, encoding="utf-8") as file:
                file.write(script.file)
            Path(file.name).replace(path)
    return folder
