"""What gives a node's jobs back when its machine shuts down; on real daemons in tests/lab/test_leaving.py."""

import json
import subprocess
from collections.abc import Callable

import pytest

from components.roles.role import template
from components.roles.slurm.slurm.slurmd import requeue_jobs_at_shutdown
from tests.unit.shell import Shell, assert_ok

PROGRAM = "/usr/local/sbin/tailrack-shutdown"
Run = Callable[..., subprocess.CompletedProcess[str]]
DOWN = "scontrol update nodename=n1 state=down reason=tailrack: shuts down"


@pytest.fixture
def shut_down(shell: Shell) -> Run:
    """Run the program as the unit's stop does, with what systemd and slurmctld say."""
    shell.write(PROGRAM, shell.inside(template("slurm", "tailrack-shutdown"))).chmod(0o755)
    shell.write("/var/lib/tailrack/node-name", "n1\n")
    shell.write("/run/slurm/conf/slurm.conf", "")
    shell.stub("pgrep", "exit 1")
    shell.stub("paste", '/usr/bin/paste "$@"')
    shell.stub("sleep")

    def run(
        system: str = "stopping", answers: bool = True, state: tuple[str, ...] = ("MIXED",), reason: str = ""
    ) -> subprocess.CompletedProcess[str]:
        shell.stub("systemctl", f'[ "$1" != is-system-running ] || echo {system}')
        shell.stub("squeue", "printf '7\\n9\\n'")
        node = json.dumps({"nodes": [{"state": state, "reason": reason}]})
        shell.stub("scontrol", f"{'' if answers else 'exit 1'}\n[ \"$1\" != show ] || echo '{node}'")
        return shell.program(PROGRAM)

    return run


def test_the_shutdown_stops_slurmd_before_it_sets_the_node_down_twice(shell: Shell, shut_down: Run) -> None:
    done = assert_ok(shut_down())
    assert "jobs on it: 7 9" in done.stdout
    calls = [call for call in shell.calls if call in (DOWN, "systemctl kill -s KILL --kill-whom=main slurmd")]
    assert calls == ["systemctl kill -s KILL --kill-whom=main slurmd", DOWN, DOWN]
    # The rest of four seconds, of which what comes between may have taken one on a busy machine.
    assert {"sleep 4", "sleep 3"} & {*shell.calls[shell.calls.index(DOWN) :]}


def test_a_controller_that_does_not_answer_is_said_and_holds_nothing_up(shell: Shell, shut_down: Run) -> None:
    done = assert_ok(shut_down(answers=False))
    assert "slurmctld does not answer: its jobs wait until slurmctld notices that the node is down" in done.stdout


def test_the_unit_ends_before_all_that_its_end_needs_and_the_scope_of_jobs_last(shell: Shell) -> None:
    shell.call(requeue_jobs_at_shutdown, "n1")
    unit = shell.path("/etc/systemd/system/tailrack-shutdown.service").read_text()
    after = {name for line in unit.splitlines() if line.startswith("After=") for name in line[6:].split()}
    assert after >= {"slurmd.service", "munge.service", "tailscaled.service", "remote-fs.target", "slurmctld.service"}
    # A unit that names the scope would keep it after its end, and slurmd makes none where one is.
    assert "slurmstepd.scope" not in unit
    for scope in ("slurmstepd.scope", "n1_slurmstepd.scope"):  # by how Slurm was built
        lines = shell.path(f"/etc/systemd/system/{scope}.d/tailrack.conf").read_text().splitlines()
        part, kind = lines[lines.index("[Unit]") : lines.index("[Scope]")], lines[lines.index("[Scope]") :]
        assert {"Before=tailrack-shutdown.service", "CollectMode=inactive-or-failed"} <= set(part), scope
        assert {"TimeoutStopSec=5", "OOMPolicy=continue"} <= set(kind), scope
