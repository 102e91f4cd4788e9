"""Every program in bash is clean, whole as it is sent to a machine; `make lint` looks at each file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from components.roles.role import template
from tests.unit.configs import RawConfig
from tests.unit.recorded import Build

PROJECT = Path(__file__).parents[4]
FILES = sorted((PROJECT / "components").rglob("*.sh"))
PROGRAMS = [
    path
    for path in sorted((PROJECT / "components/roles").glob("*/templates/*"))
    if path.read_text(encoding="utf-8").startswith("#!/bin/bash\n") and path.suffix != ".j2"
]
SHELLCHECK = Path(sys.prefix, "bin", "shellcheck")
STEPS = (
    "head-check", "head-join", "head-head", "head-services", "a1-check", "a1-join", "a1-register", "a1-node",
    "validate-cloud-a",
)  # fmt: skip


def shellcheck(text: str, *options: str) -> str:
    """What shellcheck has to say, empty when nothing."""
    command = [str(SHELLCHECK), "-s", "bash", "-f", "gcc", *options, "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60).stdout


def test_every_step_of_a_lab_is_looked_at(build: Build, lab_config: RawConfig) -> None:
    names = {step.name for step in build(lab_config).remote}
    assert {re.sub("^b1-|-cross-site$", lambda found: {"b1-": "a1-"}.get(found[0], "-cloud-a"), name)
            for name in names} == set(STEPS)  # fmt: skip


def test_shellcheck_really_looks() -> None:
    assert "SC2086" in shellcheck("#!/bin/bash\nrm $1\n")


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_every_program_is_clean_and_valid_bash(path: Path) -> None:
    text = template(path.parts[-3], path.name)
    # A program may take only a part of the functions and constants of a file that it uses (SC2034, SC2317, SC2329).
    # Backups name their states `done` and `failed` (SC1010); `A && B || C` is meant (SC2015).
    assert shellcheck(text, "-e", "SC1010,SC2015,SC2016,SC2034,SC2317,SC2329") == ""
    told = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=60)
    assert (told.returncode, told.stderr) == (0, "")


@pytest.mark.parametrize("name", STEPS)
def test_every_step_has_an_up(build: Build, lab_config: RawConfig, name: str) -> None:
    assert json.loads(build(lab_config).plan_text(name))["calls"]["up"]


def test_a_step_that_is_undone_has_a_down(build: Build, lab_config: RawConfig) -> None:
    stack = build(lab_config)
    undone = [step for step in stack.remote if "delete" in step.inputs]
    assert undone
    for step in undone:
        assert json.loads(stack.plan_text(step.name))["calls"]["down"]


def test_every_script_starts_with_a_shebang_and_a_comment() -> None:
    for path in FILES:
        first, second, *_ = path.read_text(encoding="utf-8").splitlines()
        assert first == ("#!/bin/sh" if path.name == "start.sh" else "#!/bin/bash"), path.name
        assert second.startswith("# "), path.name
