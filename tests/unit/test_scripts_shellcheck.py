"""Every script is clean bash: file by file, and whole as it is sent to a machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.remote import SCRIPTS

FILES = sorted(SCRIPTS.rglob("*.sh"))
SHELLCHECK = Path(sys.prefix, "bin", "shellcheck")
KINDS = {"gate": "a1-gate", "join": "a1-join", "member": "a1-member", "node": "a1-node", "head": "head-head",
         "validate": "validate-cloud-a"}  # fmt: skip


def shellcheck(text: str, *options: str) -> str:
    """What shellcheck has to say, empty when nothing."""
    command = [str(SHELLCHECK), "-s", "bash", "-f", "gcc", *options, "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60).stdout


def whole_scripts(build: Callable[..., Any], raw: dict[str, Any]) -> dict[str, str]:
    stack = build(raw)
    return {kind: stack[name].inputs["stdin"] for kind, name in KINDS.items()}


def test_every_script_file_is_among_the_steps_or_their_libraries() -> None:
    assert {path.stem for path in FILES if path.parent == SCRIPTS} == set(KINDS)
    assert len(FILES) > len(KINDS) + 5


def test_shellcheck_really_looks() -> None:
    assert "SC2086" in shellcheck("#!/bin/bash\nrm $1\n")


def test_every_script_file_is_clean() -> None:
    command = [str(SHELLCHECK), "-s", "bash", "-f", "gcc", *map(str, FILES)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (told.stdout, told.returncode) == ("", 0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_whole_script_is_clean(build: Callable[..., Any], lab_config: dict[str, Any], kind: str) -> None:
    # The header is data: shellcheck takes STEP_NAME=head for a command (SC2209), wonders about a quoted $ (SC2016), and
    # does not see who reads a value by its name (SC2034).
    assert shellcheck(whole_scripts(build, lab_config)[kind], "-e", "SC2209,SC2016,SC2034") == ""


@pytest.mark.parametrize("kind", KINDS)
def test_every_whole_script_has_an_up_and_is_valid_bash(
    build: Callable[..., Any], lab_config: dict[str, Any], kind: str
) -> None:
    text = whole_scripts(build, lab_config)[kind]
    told = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=60)
    assert (told.returncode, told.stderr) == (0, "")
    assert text.count("\nup() {\n") == 1


def test_a_step_that_is_undone_has_a_down(build: Callable[..., Any], lab_config: dict[str, Any]) -> None:
    undone = [step for step in build(lab_config).remote if "delete" in step.inputs]
    assert undone
    for step in undone:
        assert step.inputs["stdin"].count("\ndown() {\n") == 1


def test_every_script_file_says_what_it_is() -> None:
    for path in FILES:
        first, second, *_ = path.read_text(encoding="utf-8").splitlines()
        assert first == "#!/bin/bash", path.name
        assert second.startswith("# "), path.name
