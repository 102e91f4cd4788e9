"""`sll`: users see real jobs, and slurmctld is asked as often for a hundred of them as for one."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.cluster import ClusterUnderTest, eventually

HOSTILE = "\x1b]0;owned\x07\x1b[2J"
READER = "systemctl show -P {} tailrack-live.service"


@pytest.fixture
def quiet(cluster: ClusterUnderTest) -> Iterator[ClusterUnderTest]:
    """A cluster without jobs afterwards."""
    yield cluster
    cluster.run("head", "scancel -u ada")
    eventually(lambda: not cluster.run("head", "squeue -h"), 60, "no job is left")


def seen(cluster: ClusterUnderTest) -> dict[str, Any]:
    """What ada is shown, as programs read it."""
    told: dict[str, Any] = json.loads(cluster.run_as("ada", "head", "sll --json"))
    return told


def asked(cluster: ClusterUnderTest) -> int:
    """How often slurmctld was asked for all jobs."""
    found = re.search(r"REQUEST_JOB_INFO .*count:([0-9]+)", cluster.run("head", "sdiag"))
    return int(found[1]) if found else 0


def test_a_user_sees_what_runs_and_why_another_job_waits_and_no_name_reaches_the_terminal(
    quiet: ClusterUnderTest,
) -> None:
    submit = "cd; sbatch --parsable --output=/dev/null {} --wrap 'sleep 300'"
    runs = quiet.run_as("ada", "head", submit.format("-w b1 --exclusive -J train")).strip()
    waits = quiet.run_as("ada", "head", submit.format(f"-w b1 --exclusive -J '{HOSTILE}'")).strip()

    def states() -> dict[str, str]:
        return {job["job"]: job["state"] for job in seen(quiet)["jobs"]}

    eventually(lambda: states() == {runs: "running", waits: "pending"}, 60, "both jobs are shown")
    first, second = seen(quiet)["jobs"]
    assert (first["name"], first["nodes"], first["sites"], first["user"]) == ("train", "b1", ["cloud-b"], "ada")
    assert second["why"].startswith("waits for 1 node with")
    shown = quiet.run_as("ada", "head", "sll")
    assert "train" in shown
    assert not set(shown) & {"\x1b", "\x07"}


def test_a_hundred_who_watch_cost_slurmctld_one(quiet: ClusterUnderTest) -> None:
    seen(quiet)
    before, begin = asked(quiet), time.monotonic()
    quiet.run("head", "for i in $(seq 100); do runuser -u ada -- sll --json >/dev/null & done; wait", 300)
    lasted = time.monotonic() - begin
    # The reader's, and what else looks at jobs meanwhile.
    assert asked(quiet) - before <= lasted / 5 + 5


def test_the_reader_is_nobody_and_users_write_nothing_that_it_writes(quiet: ClusterUnderTest) -> None:
    seen(quiet)
    process = quiet.run("head", READER.format("MainPID")).strip()
    assert quiet.run("head", f"ps -o uid= -p {process}").strip() not in ("0", "6001")
    for attempt in ("touch /run/tailrack-live/x", "rm /run/tailrack-live/live.json", "rm /run/tailrack-live.socket"):
        assert quiet.attempt("head", f"runuser -u ada -- {attempt}").returncode != 0, attempt


@pytest.mark.proof
def test_nobody_asks_slurmctld_when_nobody_watches(quiet: ClusterUnderTest) -> None:
    seen(quiet)
    eventually(lambda: quiet.run("head", READER.format("ActiveState")).strip() != "active", 90, "the reader ends")
    assert seen(quiet)["nodes"] == 3
