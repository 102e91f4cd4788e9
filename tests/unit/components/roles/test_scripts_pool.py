"""A pool's place on the head node: which names are taken, what slurmctld gets; and nodes that were taken back."""

import json
import subprocess
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from components.roles.slurm.slurm import nodes
from components.steps import composition
from components.steps.command_line import kept_request
from components.steps.composition import POOL, compose, expire_program
from tests.unit.shell import ROLES, Shell, assert_fails, assert_ok

Run = Callable[..., subprocess.CompletedProcess[str]]
SLURM = "/var/lib/tailrack/slurm"
SITE = "NodeSet=site-far Feature=site-far\nPartitionName=far Nodes=site-far MaxTime=INFINITE State=UP"
BASE = """ClusterName=lab
PartitionName=all Nodes=ALL Default=YES
PartitionName=h200 Nodes=gpu-h200
PartitionName=long Nodes=site-rack"""


@pytest.fixture
def pool(shell: Shell) -> Run:
    """Run the pool's step for pool `acme.burst` with node c1 at site far, on a head node with a cluster."""
    shell.write(f"{SLURM}/base/slurm.conf", f"{BASE}\n")
    shell.stub("scontrol", 'if [ "$1" = ping ]; then echo "Slurmctld(primary) at head is UP"; fi')

    def run(action: str = "up", **values: Any) -> subprocess.CompletedProcess[str]:
        header = {
            "pool_owner": "acme.burst", "pool_nodes": "c1", "pool_kinds": "",
            "pool_slurm_conf": SITE, "pool_placeholders": [], "pool_kept": [], **values,
        }  # fmt: skip
        return shell.step(compose(ROLES, POOL), header, action, name="burst-pool", host="head")

    return run


def slurm_conf(shell: Shell) -> str:
    return shell.path("/etc/slurm/slurm.conf").read_text()


def member(shell: Shell, node: str, owner: str = "", **files: str) -> None:
    """What the head node keeps of a node."""
    for name, text in {"site": "rack", "owner": owner, "slurm.conf": "", **files}.items():
        shell.write(f"{SLURM}/nodes/{node}/{name}", f"{text}\n")


def test_a_pools_site_becomes_a_partition_and_is_none_any_more_when_it_goes(shell: Shell, pool: Run) -> None:
    assert_ok(pool())
    assert "PartitionName=far Nodes=site-far" in slurm_conf(shell)
    assert_ok(pool("down"))
    assert "far" not in slurm_conf(shell)
    assert not shell.path(f"{SLURM}/pools/acme.burst").exists()


def test_a_taken_name_is_refused_and_not_written(shell: Shell, pool: Run) -> None:
    member(shell, "b1", "", **{"slurm.conf": SITE.replace("far", "near")})
    member(shell, "d1", "acme.other")
    shell.write(f"{SLURM}/pools/acme.other/nodes", "d1\nd2\n")
    shell.write(f"{SLURM}/pools/acme.other/slurm.conf", SITE.replace("far", "moon") + "\n")
    taken = "the cluster already has a"
    for values, said in (
        *(({"pool_slurm_conf": SITE.replace("far", at)}, f"{taken} partition {at}") for at in ("long", "near", "moon")),
        ({"pool_kinds": "long"}, f"{taken} partition long, and it is not one of a GPU kind"),
        ({"pool_nodes": "c1\nb1"}, f"{taken} node b1, in its own stack"),
        ({"pool_nodes": "d1"}, f"{taken} node d1, in the pool acme.other"),
        ({"pool_nodes": "d2"}, f"{taken} node d2, in the pool acme.other"),
        ({"pool_nodes": "head"}, "the cluster's head node has the same name, head"),
        ({"pool_nodes": "h200"}, "the cluster has a partition h200, and one of the pool's nodes has the same name"),
    ):
        assert_fails(pool(**values), said)
        assert not shell.path(f"{SLURM}/pools/acme.burst").exists(), values
    assert_ok(pool(pool_kinds="h200"))  # of both


def test_without_a_cluster_a_pool_is_refused_and_can_be_removed(shell: Shell, pool: Run) -> None:
    shell.path(f"{SLURM}/base/slurm.conf").unlink()
    shell.path(f"{SLURM}/base").rmdir()
    done = pool()
    assert "there is no cluster on head yet" in done.stderr
    assert pool("down").returncode == 0


# Nodes that were taken back.


@pytest.fixture
def forget(shell: Shell) -> Run:
    """Run the head node's program by its timer, with node c1 in a state of Slurm's, in the tailnet or not."""
    shell.write(f"{SLURM}/base/slurm.conf", f"{BASE}\n")
    shell.stub("exportfs")
    shell.stub("hostname", "echo head")

    def run(*states: str, online: bool, minutes: int = 5, calls_itself: str = "c1") -> subprocess.CompletedProcess[str]:
        member(shell, "c1", "acme.burst", forget_after=str(minutes), **{"slurm.conf": SITE})
        shell.write("/etc/exports.d/tailrack-c1.exports", "/export/shared 100.64.0.7/32(rw)\n")
        shell.write("/var/lib/tailrack/members/c1/key-cert.pub", "certificate\n")
        for name, address in (("head", "100.64.0.1"), ("c1", "100.64.0.7")):
            shell.write(f"/var/lib/tailrack/members/{name}/address", f"{address}\n")
        shell.write("/usr/local/sbin/tailrack-names", "#!/bin/sh\n").chmod(0o755)
        shell.write("/var/lib/tailrack/node-name", "head\n")
        known = json.dumps({"nodes": [{"name": "c1", "state": list(states)}]})
        shell.stub(
            "scontrol",
            f"""case $1 in
            ping) echo "Slurmctld(primary) at head is UP" ;;
            show) if [ -e {shell.root}/deleted ]; then exit 1; fi; echo '{known}' ;;
            delete) touch {shell.root}/deleted ;;
        esac""",
        )
        # Another machine may call itself what it likes.
        peers = {
            "key": {
                "DNSName": f"{calls_itself}.lab.ts.net.",
                "TailscaleIPs": ["100.64.0.7", "fd7a::7"],
                "Online": online,
            },
            "other": {"DNSName": "c1.lab.ts.net.", "TailscaleIPs": ["100.64.0.9"], "Online": True},
            "shared-in": {"DNSName": "c1.other.ts.net.", "TailscaleIPs": None, "Online": True},
        }
        status = json.dumps({"Peer": peers})
        shell.stub("tailscale", f"case $1 in ip) echo 100.64.0.1 ;; *) echo '{status}' ;; esac")
        request = kept_request("head", {"head_kernel_nfs": True, "share_path": "/export/shared", "share_node": ""})
        shell.write("/etc/tailrack/plans/expire.json", f"{shell.inside(expire_program(ROLES).file)}\n{request}\n")
        return shell.kept("expire")

    return run


def test_a_role_that_needs_more_of_a_node_than_its_name_to_forget_it_is_refused() -> None:
    with (
        mock.patch.object(composition, "_function", composition._function.__wrapped__),
        mock.patch.object(nodes, "forget", nodes.register),
        pytest.raises(ValueError, match=r"forgotten by its name alone, without .*node_site"),
    ):
        expire_program(ROLES)


def silent_since(shell: Shell, minutes: int) -> None:
    """Let c1's silence have begun so many minutes ago."""
    mark = shell.write(f"{SLURM}/silent/c1", "")
    subprocess.run(["touch", "-d", f"{minutes} minutes ago", mark], check=True)


def is_there(shell: Shell) -> bool:
    return shell.path(f"{SLURM}/nodes/c1").exists()


def test_a_node_that_was_silent_for_too_long_leaves_nothing_and_its_jobs_go_back(shell: Shell, forget: Run) -> None:
    silent_since(shell, 6)
    assert_ok(forget("DOWN", "NOT_RESPONDING", online=False))
    calls = shell.calls
    down = next(index for index, call in enumerate(calls) if call.startswith("scontrol update nodename=c1 state=down"))
    assert "scontrol delete nodename=c1" in calls[down:]
    assert not is_there(shell)
    assert not shell.path("/etc/exports.d/tailrack-c1.exports").exists()
    assert not shell.path("/var/lib/tailrack/members/c1").exists()
    assert shell.path("/var/lib/tailrack/names").read_text() == "100.64.0.1 head\n"
    assert not shell.path(f"{SLURM}/silent/c1").exists()
    assert "far" not in slurm_conf(shell)


def test_a_pod_that_is_forgotten_leaves_no_record(shell: Shell, forget: Run) -> None:
    shell.write("/var/lib/tailrack/pods/c1", "")
    shell.write("/var/lib/tailrack/pods/c2", "")
    record = {"node": "c1", "user": "ada", "folder": "/shared/home/ada/run"}
    for job, node in ((12, "c1"), (13, "c2")):
        shell.write(f"/var/lib/tailrack/pod-staging/{job}", json.dumps({**record, "job": job, "node": node}))
    silent_since(shell, 6)
    assert forget("DOWN", "NOT_RESPONDING", online=False).returncode == 0
    for path in ("pods/c1", "pod-staging/12"):
        assert not shell.path(f"/var/lib/tailrack/{path}").exists()
    for path in ("pods/c2", "pod-staging/13"):
        assert shell.path(f"/var/lib/tailrack/{path}").exists()


def test_a_node_that_slurm_or_the_tailnet_hears_stays_and_silence_counts_from_its_first_time(
    shell: Shell, forget: Run
) -> None:
    for states, online in ((["IDLE"], False), (["DOWN"], True), (["IDLE", "NOT_RESPONDING"], True), (["MIXED"], True)):
        silent_since(shell, 60)
        assert forget(*states, online=online).returncode == 0
        assert (is_there(shell), shell.path(f"{SLURM}/silent/c1").exists()) == (True, False), states
    assert forget("IDLE", "NOT_RESPONDING", online=False).returncode == 0
    assert (is_there(shell), shell.path(f"{SLURM}/silent/c1").exists()) == (True, True)


def test_a_pool_forgets_no_node_while_slurmctld_does_not_answer(shell: Shell, forget: Run) -> None:
    silent_since(shell, 6)
    forget("IDLE", online=True)
    silent_since(shell, 6)
    shell.stub("scontrol", "exit 1")
    assert_fails(shell.kept("expire"), "slurmctld does not answer")
    assert is_there(shell)
