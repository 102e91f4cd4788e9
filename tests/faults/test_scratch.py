"""A job's own folder on its node's disk (tailrack:scratch), as its user sees it. The tests run in this order."""

import pytest

from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually

PLACE = "/var/lib/scratch/tailrack-jobs"
NODES = ("l1", "l2")
# What mktemp calls a file.
A_FILE = "tmp."
# Data that come to each node's own disk, and folders that not even their owner can write.
JOB = """#!/bin/bash
srun true
seq 1000 >numbers
sbcast numbers $TMPDIR/numbers
srun bash -c 'echo on $SLURMD_NODENAME $TMPDIR $(tail -n 1 $TMPDIR/numbers) $(stat -c %U:%a $TMPDIR) $(mktemp)'
srun bash -c 'mkdir -p $TMPDIR/a/b; touch $TMPDIR/a/b/c; chmod 0500 $TMPDIR/a/b; ln -s /shared/home/ada $TMPDIR/link'
TMPDIR=/var/tmp srun -N1 bash -c 'echo asked for $TMPDIR'
"""


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> ClusterUnderTest:
    """Two nodes and an idle head node."""
    made = make_cluster("scratch")
    made.rent_at_lambda(len(NODES))
    made.config["tailrack:users"].append({"name": "bob", "uid": 6002})
    made.config["tailrack:scratch"] = {"folder": "/var/lib/scratch"}
    made.up_ok()
    return made


def test_a_job_has_a_folder_of_its_own_on_each_of_its_nodes(cluster: ClusterUnderTest) -> None:
    cluster.run_as("ada", "desk", f"cat >job.sh <<'END'\n{JOB}END")
    job = cluster.run_as("ada", "desk", "sbatch --wait --parsable -N2 --output=out job.sh", 120).strip()
    out = cluster.run("desk", "cat /export/shared/home/ada/out")
    own = f"{PLACE}/{job}"
    for node in NODES:
        assert f"on {node} {own} 1000 ada:700 {own}/{A_FILE}" in out
    # What the user says himself holds.
    assert "asked for /var/tmp" in out


def test_only_the_job_sees_its_scratch_which_is_removed_at_the_end(cluster: ClusterUnderTest) -> None:
    words = "sbatch --parsable -w l1 --output=none --wrap 'echo secret >$TMPDIR/file; tail -f /dev/null'"
    job = cluster.run_as("ada", "desk", words).strip()
    file = f"{PLACE}/{job}/file"
    eventually(lambda: cluster.attempt("l1", f"test -s {file}").returncode == 0, 30, "the job has written")
    refused = cluster.attempt("l1", f"runuser -u bob -- cat {file}")
    assert "Permission denied" in refused.stderr
    # Another job's end takes nothing of it along.
    cluster.run_as("bob", "desk", "srun -w l1 bash -c 'echo bob >$TMPDIR/file'")
    assert cluster.run("l1", f"cat {file}") == "secret\n"
    cluster.run("desk", f"scancel {job}")
    for node in NODES:
        eventually(lambda node=node: cluster.run(node, f"ls {PLACE}") == "", 30, f"nothing is left on {node}")  # type: ignore[misc]
    # A link in it was not followed.
    cluster.run("desk", "test -s /export/shared/home/ada/job.sh")
    assert cluster.run("desk", "sinfo -h -N -p all -o '%N %T'").split("\n")[:2] == ["l1 idle", "l2 idle"]


def test_the_next_job_removes_leftovers_of_a_restart(cluster: ClusterUnderTest) -> None:
    cluster.run("l1", f"install -d -m 0700 -o ada -g ada {PLACE}/1; runuser -u ada -- touch {PLACE}/1/file")
    cluster.run_as("bob", "desk", "srun -w l1 true")
    eventually(lambda: cluster.run("l1", f"ls {PLACE}") == "", 30, "it is gone")


def test_without_the_line_in_the_config_it_is_gone_from_the_nodes(cluster: ClusterUnderTest) -> None:
    del cluster.config["tailrack:scratch"]
    cluster.up_ok()
    for node in NODES:
        assert cluster.attempt(node, f"test -e {PLACE}").returncode == 1
    assert cluster.run_as("ada", "desk", "srun -w l1 bash -c '[ $TMPDIR = /tmp ] && echo as before'") == "as before\n"
