"""`sll`: users see real jobs."""

import json
from typing import Any

import pytest

from tests.lab.cluster import ClusterUnderTest, eventually

HOSTILE = "\x1b]0;owned\x07\x1b[2J"


def seen(cluster: ClusterUnderTest) -> dict[str, Any]:
    """What ada is shown, as programs read it."""
    told: dict[str, Any] = json.loads(cluster.run_as("ada", "head", "sll --json"))
    return told


@pytest.mark.usefixtures("no_jobs")
def test_sll_shows_running_jobs_and_wait_reasons_and_escapes_names(cluster: ClusterUnderTest) -> None:
    runs = cluster.submit("-w b1 --exclusive -J train --wrap 'sleep 300'")
    waits = cluster.submit(f"-w b1 --exclusive -J '{HOSTILE}' --wrap 'sleep 300'")

    def states() -> dict[str, str]:
        return {job["job"]: job["state"] for job in seen(cluster)["jobs"]}

    eventually(lambda: states() == {runs: "running", waits: "pending"}, 60, "both jobs are shown")
    first, second = seen(cluster)["jobs"]
    assert (first["name"], first["nodes"], first["sites"], first["user"]) == ("train", "b1", ["cloud-b"], "ada")
    assert second["why"].startswith("waits for 1 node with")
    shown = cluster.run_as("ada", "head", "sll")
    assert "train" in shown
    assert not set(shown) & {"\x1b", "\x07"}
