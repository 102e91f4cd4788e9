"""Every program in bash is clean, whole as it is sent to a machine; `make lint` looks at each file."""

import subprocess
import sys
from pathlib import Path

import pytest

from components.roles.role import template

PROJECT = Path(__file__).parents[4]
PROGRAMS = [
    path
    for path in sorted((PROJECT / "components/roles").glob("*/*/templates/*"))
    if path.read_text(encoding="utf-8").startswith("#!/bin/bash\n") and path.suffix != ".j2"
]
SHELLCHECK = Path(sys.prefix, "bin", "shellcheck")


def shellcheck(text: str, *options: str) -> str:
    """What shellcheck has to say, empty when nothing."""
    command = [str(SHELLCHECK), "-s", "bash", "-f", "gcc", *options, "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_every_program_is_clean_and_valid_bash(path: Path) -> None:
    text = template(path.parts[-3], path.name)
    # A program may take only a part of the functions and constants of a file that it uses (SC2034, SC2317, SC2329).
    # Backups name their states `done` and `failed` (SC1010); `A && B || C` is meant (SC2015).
    assert shellcheck(text, "-e", "SC1010,SC2015,SC2016,SC2034,SC2317,SC2329") == ""
    told = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=60)
    assert (told.returncode, told.stderr) == (0, "")
