"""Why a node is out, and back in: on the head node, from where the stack is run, and by Slurm's own reboot."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.cluster import ClusterUnderTest, eventually

CHECKS = "/usr/local/sbin/tailrack-checks"
FAILURE = "/run/tailrack/last-failure.json"


@pytest.fixture
def back(cluster: ClusterUnderTest) -> Iterator[None]:
    """All nodes take work again after a test, and nothing that it has put there is left."""
    yield
    cluster.attempt("b1", f"[ ! -e {CHECKS}.real ] || mv -fT {CHECKS}.real {CHECKS}; rm -f {FAILURE}")
    for node in ("a1", "b1"):
        cluster.attempt("head", f"scontrol update nodename={node} state=resume")
    eventually(lambda: "all 3 nodes take work" in cluster.run("head", "tailrack nodes"), 60, "all nodes take work")


def nodes(cluster: ClusterUnderTest) -> dict[str, dict[str, Any]]:
    """What `tailrack nodes --json` says, by name."""
    return {node["name"]: node for node in json.loads(cluster.run("head", "tailrack nodes --json"))["nodes"]}


def status(cluster: ClusterUnderTest) -> str:
    """What `make status` prints, in one line."""
    words = cluster.driver("status")
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


def with_findings(cluster: ClusterUnderTest, *findings: dict[str, str]) -> None:
    """Let the node's checks find something: a program in the place of its own, which is set aside."""
    text = json.dumps(list(findings))
    cluster.run("b1", f"[ ! -e {CHECKS} ] || mv -fT {CHECKS} {CHECKS}.real")
    cluster.run("b1", f"printf '#!/bin/sh\\necho %s\\n' {json.dumps(json.dumps(text))} >{CHECKS}; chmod 0755 {CHECKS}")


@pytest.mark.usefixtures("back")
def test_the_head_node_and_make_status_show_the_owner_and_remedy_of_a_drain(cluster: ClusterUnderTest) -> None:
    assert {node["out"] for node in nodes(cluster).values()} == {False}
    cluster.run("head", "scontrol update nodename=a1 state=drain reason='new disk'")
    cluster.run("head", "scontrol update nodename=b1 state=drain reason='health: Xid 79 GPU 3'")
    found = nodes(cluster)
    assert (found["a1"]["whose"], found["a1"]["who"], found["a1"]["reason"]) == ("person", "root", "new disk")
    assert (found["b1"]["whose"], found["b1"]["reason"]) == ("health", "Xid 79 GPU 3")
    assert found["a1"]["since"] > 1_700_000_000
    # A user sees the same, and may change nothing.
    assert "person root" in cluster.run_as("ada", "head", "tailrack nodes")
    refused = cluster.attempt("head", "su - ada -c 'tailrack resume a1'")
    assert refused.returncode == 1
    assert "sudo tailrack resume a1" in refused.stderr
    said = status(cluster)
    assert "a1 drained person root, since" in said
    assert "next: tailrack resume a1 (when root is done)" in said
    assert "2 of 3 nodes out" in said


@pytest.mark.usefixtures("back")
def test_a_node_with_an_error_is_not_resumed_and_the_remedy_is_shown(cluster: ClusterUnderTest) -> None:
    with_findings(cluster, {"severity": "error", "check": "disk", "seen": "/ is 99 % full", "remedy": "make room"})
    cluster.run("head", "scontrol update nodename=b1 state=drain reason='health: disk'")
    refused = cluster.attempt("head", "tailrack resume b1")
    assert refused.returncode == 1
    assert "error: disk: / is 99 % full; make room" in refused.stdout
    assert "b1 stays out: disk: / is 99 % full" in refused.stderr
    assert nodes(cluster)["b1"]["out"]
    with_findings(cluster)
    assert "b1 takes work again: idle" in cluster.run("head", "tailrack resume b1")
    # A node that is down is resumed the same way, unless it is back by itself before that.
    cluster.run("head", "scontrol update nodename=b1 state=down reason=gone")
    assert "takes work" in cluster.run("head", "tailrack resume b1")
    # The head node, which computes here, is asked without SSH.
    cluster.run("head", "scontrol update nodename=head state=drain reason=x")
    assert "head takes work again" in cluster.run("head", "tailrack resume head")


@pytest.mark.usefixtures("back")
def test_a_drain_shows_the_leftovers_of_a_failed_prolog(cluster: ClusterUnderTest) -> None:
    told = {"script": "30-health", "job": "12", "what": "Xid 79 on GPU 3", "remedy": "reset the GPU", "boot_id": "x"}
    cluster.run("b1", f"mkdir -p /run/tailrack; echo '{json.dumps(told)}' | jq '.time = now' >{FAILURE}")
    # As slurmctld does: under its own account.
    cluster.run("head", "runuser -u slurm -- scontrol update nodename=b1 state=drain reason='Prolog error'")
    found = nodes(cluster)["b1"]
    assert found["whose"] == "prolog"
    assert found["reason"] == "Prolog error: 30-health, job 12: Xid 79 on GPU 3"
    assert found["next"] == "reset the GPU, then tailrack resume b1"


def test_a_node_answers_the_head_nodes_questions_and_nothing_else(cluster: ClusterUnderTest) -> None:
    assert cluster.attempt("head", "tailrack-ask b1 last-failure").returncode == 0
    for words in ("b1 no-such-question", "b1 ../../sbin/reboot", "b1 'last-failure;id'", "nobody last-failure"):
        assert cluster.attempt("head", f"tailrack-ask {words}").returncode in (2, 255), words
    # By hand, past the program's own look at its words.
    folder = cluster.run("head", "sed -n 's/ ask .*//p' /usr/local/sbin/tailrack-ask").split()[-1]
    ask = f"""import sys; sys.path.insert(0, {folder!r})
from components.roles.access.ssh_trust.ask import asking_key, pass_on, ssh_command
with asking_key() as key: sys.exit(pass_on(*ssh_command(key, "b1", "id; cat /etc/munge/munge.key")))"""
    tried = cluster.attempt("head", f"/usr/bin/python3 -I -S - <<'EOF'\n{ask}\nEOF")
    assert (tried.returncode, tried.stdout) == (255, "")
    assert "no such answer" in tried.stderr
    # And what it asks with is gone.
    assert "ask" not in cluster.run("head", "ls /run/tailrack-private")


@pytest.mark.proof
@pytest.mark.usefixtures("back")
def test_slurm_reboots_a_node_that_is_asked_to_and_takes_it_back_by_itself(cluster: ClusterUnderTest) -> None:
    def started() -> str:
        words = ["docker", "inspect", "-f", "{{.State.StartedAt}}", cluster.container("b1")]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    # slurmctld takes a node back whose slurmd tells of a boot after its order. A container's kernel is its host's and
    # knows of none; with -b slurmd tells of its own start, as it would of a machine's.
    options = "/etc/systemd/system/slurmd.service.d/lab.conf"
    cluster.run(
        "b1", f"printf '[Service]\\nEnvironment=TAILRACK_SLURMD_OPTIONS=-b\\n' >{options}; systemctl daemon-reload"
    )
    before = started()
    cluster.run("head", "scontrol reboot ASAP nextstate=resume reason=kernel b1")
    eventually(lambda: started() != before, 120, "b1 went down by Slurm's order, and is up")
    eventually(lambda: not nodes(cluster)["b1"]["out"], 240, "b1 takes work, and nobody has said so")
    cluster.run("b1", f"rm {options}; systemctl daemon-reload")
    assert cluster.run_as("ada", "head", "srun -w b1 --immediate=30 hostname", limit=90) == "b1\n"
