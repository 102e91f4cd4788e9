"""Every script is clean bash, whole as it is sent to a machine; `make lint` looks at each file."""

from __future__ import annotations

import json
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
    parts = dict.fromkeys(part for name in STEPS for part in re.split(r"(?<=\n}\n)", stack.bash(name)))
    # shellcheck wonders about a quoted $ (SC2016), and does not see who reads a value by its name or in a function of
    # another role (SC2034), or that the step assigns it (SC2153). What following the flow of a function finds, lint
    # finds file by file.
    text = "#!/bin/bash\n" + "".join(parts)
    assert shellcheck(text, "-e", "SC2016,SC2034,SC2153", "--extended-analysis=false") == ""


@pytest.mark.parametrize("name", STEPS)
def test_every_step_has_an_up_and_valid_bash(build: Build, lab_config: RawConfig, name: str) -> None:
    stack = build(lab_config)
    told = subprocess.run(["bash", "-n"], input=stack.bash(name), capture_output=True, text=True, timeout=60)
    assert (told.returncode, told.stderr) == (0, "")
    assert json.loads(stack.plan_text(name))["calls"]["up"]


@pytest.mark.parametrize("name", STEPS)
def test_no_two_roles_have_a_function_of_one_name_in_a_step(build: Build, lab_config: RawConfig, name: str) -> None:
    defined = re.findall(r"^([a-z_0-9]+)\(\) \{", build(lab_config).bash(name), re.MULTILINE)
    assert sorted(function for function, times in Counter(defined).items() if times > 1) == []


def test_a_step_that_is_undone_has_a_down(build: Build, lab_config: RawConfig) -> None:
    stack = build(lab_config)
    undone = [step for step in stack.remote if "delete" in step.inputs]
    assert undone
    for step in undone:
        assert json.loads(stack.plan_text(step.name))["calls"]["down"]


def test_every_script_file_says_what_it_is() -> None:
    for path in FILES:
        first, second, *_ = path.read_text(encoding="utf-8").splitlines()
        assert first == ("#!/bin/sh" if path.name == "start.sh" else "#!/bin/bash"), path.name
        assert second.startswith("# "), path.name
