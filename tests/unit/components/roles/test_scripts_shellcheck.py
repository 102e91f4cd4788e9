"""Every script is clean bash, whole as it is sent to a machine; `make lint` looks at each file."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.configs import RawConfig
from tests.unit.recorded import Build

PROJECT = Path(__file__).parents[4]
FILES = sorted((PROJECT / "components").rglob("*.sh"))
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


def test_all_that_is_sent_to_machines_is_clean(build: Build, lab_config: RawConfig) -> None:
    stack = build(lab_config)
    # What many scripts share is looked at once: function by function, in the order in which they are sent.
    parts = dict.fromkeys(part for name in STEPS for part in re.split(r"(?<=\n}\n)", stack.whole(name)))
    assert sum(part.lstrip().startswith("up() {\n") for part in parts) == len(STEPS)
    # The header is data: shellcheck takes NODE_NAME=head for a command (SC2209) and X=n-2 for a sum (SC2100), wonders
    # about a quoted $ (SC2016), and does not see who reads a value by its name
    # or in a function of another role (SC2034). What following the flow of a function finds, lint finds file by file.
    assert shellcheck("".join(parts), "-e", "SC2209,SC2100,SC2016,SC2034", "--extended-analysis=false") == ""


@pytest.mark.parametrize("name", STEPS)
def test_every_whole_script_has_an_up_and_is_valid_bash(build: Build, lab_config: RawConfig, name: str) -> None:
    text = build(lab_config).whole(name)
    told = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=60)
    assert (told.returncode, told.stderr) == (0, "")
    assert text.count("\nup() {\n") == 1


@pytest.mark.parametrize("name", STEPS)
def test_no_two_roles_have_a_function_of_one_name_in_a_script(build: Build, lab_config: RawConfig, name: str) -> None:
    # Programs that the step writes to the machine are in quotes: each has functions of its own.
    quoted = r"'(?:[^']|'\"'\"')*'"
    programs = rf"^[A-Z_0-9]+={quoted}|(?<=root:root ){quoted}"
    text = re.sub(programs, "", build(lab_config).whole(name), flags=re.MULTILINE)
    defined = re.findall(r"^([a-z_0-9]+)\(\) \{", text, re.MULTILINE)
    assert len(defined) > 5
    assert sorted(function for function, times in Counter(defined).items() if times > 1) == []


def test_a_step_that_is_undone_has_a_down(build: Build, lab_config: RawConfig) -> None:
    undone = [step for step in build(lab_config).remote if "delete" in step.inputs]
    assert undone
    for step in undone:
        assert build(lab_config).whole(step.name).count("\ndown() {\n") == 1


def test_every_script_file_says_what_it_is() -> None:
    for path in FILES:
        first, second, *_ = path.read_text(encoding="utf-8").splitlines()
        assert first == "#!/bin/bash", path.name
        assert second.startswith("# "), path.name
