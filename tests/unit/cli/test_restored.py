"""A restored head node whose backup is older than the newest one that the stack knows of is told."""

import json

import pytest

from cli.pulumi.deployment import older_backup
from cli.run_events import Made
from components.steps.label import StepLabel

UP = "bash -euo pipefail -s -- up"


def step(name: str, **answer: int) -> Made:
    command = StepLabel(f"head-{name}", "head", name).on(UP)
    return Made(f"urn:pulumi:dev::x::command:remote:Command::head-{name}", command, "", json.dumps(answer), [], {})


SERVICES, JOIN = step("services", backup_made=7200), step("join")


def restored(made: int) -> Made:
    return step("join", restored_made=made)


@pytest.mark.parametrize(
    ("before", "after", "warns"),
    [
        ([SERVICES, JOIN], [SERVICES, restored(3600)], True),
        ([SERVICES, JOIN], [SERVICES, restored(7200)], False),
        ([SERVICES, JOIN], [SERVICES, JOIN], False),
        ([step("services"), JOIN], [restored(3600)], False),
        ([SERVICES, restored(3600)], [SERVICES, restored(3600)], False),
        ([step("services", backup_made=1), JOIN], [step("services", backup_made=9), restored(5)], False),
    ],
)
def test_an_older_backup_is_a_warning_with_both_times(before: list[Made], after: list[Made], warns: bool) -> None:
    warning = older_backup(before, after)
    assert bool(warning) == warns
    if warns:
        assert "from a backup of 1970-01-01 01:00 UTC, but a backup of 1970-01-01 02:00 UTC existed" in warning
