"""From the last release to this checkout, under a running job: machines of one's own, first as the release makes them.

Needs the release's tag; a clone without it, such as a shallow one, skips this and says so. UPGRADE_FROM in the
environment names another commit to come from.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.pulumi.workspace import PROJECT
from stacks.release import RELEASE
from tests.lab.cluster import MakeCluster, eventually, own_machine

TAG = os.environ.get("UPGRADE_FROM", f"v{RELEASE}")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the last release, with this one's Python environment."""
    there = ["git", "-C", str(PROJECT), "rev-parse", "--verify", "--quiet", f"{TAG}^{{commit}}"]
    found = subprocess.run(there, capture_output=True, text=True)
    if found.returncode:
        pytest.skip(f"THE UPGRADE IS NOT TESTED: this clone has no tag {TAG}; git fetch --tags --unshallow")
    folder = tmp_path_factory.mktemp("release") / "tailrack"
    subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", str(PROJECT), str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "checkout", "-q", "--detach", found.stdout.strip()], check=True)
    (folder / ".venv").symlink_to(PROJECT / ".venv")
    return folder


def test_a_stack_of_the_last_release_is_upgraded_while_its_job_runs(release: Path, make_cluster: MakeCluster) -> None:
    lab = make_cluster("v1")
    hosts = [own_machine(lab.lab, name, bare=True) for name in ("head", "n1")]
    lab.use_machines({"name": "rack", "fabric": "tailnet", "hosts": hosts})
    words = [sys.executable, *lab.driver("up")[1:]]
    done = subprocess.run(words, cwd=release, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    job = lab.submit("-w n1 --wrap 'tail -f /dev/null'")

    eventually(lambda: lab.job(job)["JobState"] == "RUNNING", 60, "the job runs")
    before = lab.job(job)
    machine = lab.run("n1", "cat /etc/munge/munge.key; tailscale ip -4; cat /etc/ssh/ssh_host_ed25519_key.pub")
    lab.up_ok()
    replaced = {event.name for event in lab.events if event.operation in ("replace", "delete", "create-replacement")}
    assert {name for name in replaced if not name.startswith("validate-")} == set()
    made = {event.name for event in lab.events if event.kind == "done" and event.operation == "create"}
    assert {name for name in made if not name.startswith("validate-") and not name.endswith("-scripts")} <= {
        "n1-services"
    }
    ran = [event.name for event in lab.events if event.kind == "done" and event.operation == "update"]
    assert len(ran) == len(set(ran)), "no step runs twice"
    now = lab.job(job)
    for key in ("JobState", "StartTime", "Restarts", "BatchHost"):
        assert now[key] == before[key], key
    assert lab.run("n1", "cat /etc/munge/munge.key; tailscale ip -4; cat /etc/ssh/ssh_host_ed25519_key.pub") == machine
    assert lab.deployment().outputs()["release"] == RELEASE
    lab.up_ok()
    assert lab.touched() == set()
    lab.run("head", f"scancel {job}")
    eventually(lambda: lab.run("head", "squeue -h") == "", 60, "the job has ended")
    assert lab.run_as("ada", "head", "srun -w n1 hostname").strip() == "n1"
