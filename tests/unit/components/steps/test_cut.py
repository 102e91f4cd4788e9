"""A script that is cut off on its way to a machine does nothing there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.recorded import Build
from tests.unit.shell import Shell

STEPS = ("a1-check", "a1-join", "a1-register", "a1-node", "head-head", "validate-cloud-a")


@pytest.fixture
def script(build: Build, lab_config: dict[str, Any], request: pytest.FixtureRequest) -> str:
    """A whole script, as it is sent; the first thing it does is to make its log folder."""
    return build(lab_config).whole(request.param)


def started(shell: Shell, text: str) -> bool:
    """Whether the text, run as a step, got as far as its first change; the stubs let it go no further."""
    mark: Path = shell.root / "var/log/tailrack"
    shell.stub("mkdir", f'[ "$2" != "{mark}" ] || : >"{mark}.started"; exit 1')
    (shell.root / "var/log").mkdir(parents=True, exist_ok=True)
    made = mark.with_suffix(".started")
    made.unlink(missing_ok=True)
    shell.run(text)
    return made.exists()


every_step = pytest.mark.parametrize("script", STEPS, indirect=True)


@every_step
def test_a_whole_script_starts(shell: Shell, script: str) -> None:
    assert started(shell, script)


@every_step
def test_a_script_without_its_last_brace_does_nothing(shell: Shell, script: str) -> None:
    assert script.endswith("; }\n")
    assert not started(shell, script.removesuffix("}\n"))


@pytest.mark.parametrize("script", ["a1-register"], indirect=True)
def test_a_script_cut_off_anywhere_in_its_last_line_does_nothing(shell: Shell, script: str) -> None:
    call = len(script) - script.rstrip("\n").rindex("\n")
    assert 20 < call < 50
    for missing in range(2, call + 1):  # 1 is the newline after the last brace
        assert not started(shell, script[:-missing]), script[-missing - 20 : -missing]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(part=st.floats(0, 1, exclude_max=True))
@pytest.mark.parametrize("script", ["a1-node", "validate-cloud-a"], indirect=True)
def test_a_script_cut_off_anywhere_does_nothing(shell: Shell, script: str, part: float) -> None:
    assert not started(shell, script[: int(part * (len(script) - 2))])
