"""Hold jobs, and drain nodes, while the munge key changes."""

from __future__ import annotations

from collections.abc import Sequence

from components.node import files
from components.node.log import note
from components.node.run import attempt, run
from components.node.step.step import STATE_DIR
from components.node.waiting import wait_until

# Held partitions, one per line. tailrack-munge-release releases them, even if the step is killed.
HELD = f"{STATE_DIR}/munge.held"
RELEASE = "/usr/local/sbin/tailrack-munge-release"
# Seconds to wait for earlier messages to nodes; after which jobs start again even if the step is not done.
_QUIET = 10
_LONGEST = 50
_RELEASE_SECONDS = 20
# The node's own steps also recognize this reason (OUR_DRAINS in slurm/compute.sh).
_DRAIN = "tailrack: has another munge key"
_UNIT = "tailrack-munge-release"


def hold_jobs() -> None:
    """Let no job start, and wait until nodes have slurmctld's earlier messages."""
    rows = (line.split() for line in run("sinfo", "-h", "-a", "-o", "%R %a").splitlines())
    up = {name for name, state in rows if state == "up"}
    # A change that was killed has held the others.
    partitions = sorted(up | {name for name in files.lines(HELD) if name})
    if partitions:
        files.write(HELD, "\n".join(partitions))
    attempt("systemctl", "stop", f"{_UNIT}.timer", f"{_UNIT}.service", quiet=True)
    service = ("--property=Restart=on-failure", "--property=RestartSec=5")
    timer = ("--timer-property=AccuracySec=1s", f"--on-active={_LONGEST}")
    run("systemd-run", "-q", "--unit", _UNIT, *service, *timer, RELEASE)
    for name in partitions:
        run("scontrol", "update", f"partitionname={name}", "state=down")
    if not wait_until(_no_pending_messages, _QUIET):
        note("some messages to nodes are still pending")


def _no_pending_messages() -> bool:
    if attempt("squeue", "-h", "-t", "CF,CG", "-o", "%A").output.strip():
        return False
    counts = (line.partition(":") for line in attempt("sdiag").output.splitlines())
    return any(name == "Agent count" and count.strip() == "0" for name, _, count in counts)


def release_jobs(*, asked: bool) -> bool:
    """Let jobs start again; return whether they can. `asked`: the list of late nodes is exact."""
    if not files.exists(HELD):
        return True
    if not wait_until(lambda: attempt(RELEASE, *(["asked"] if asked else [])).ok, _RELEASE_SECONDS):
        return False
    attempt("systemctl", "stop", f"{_UNIT}.timer", quiet=True)
    return True


def undrain_except(nodes: Sequence[str]) -> None:
    """Undrain nodes that were drained for their key and are not among these."""
    output = attempt("sinfo", "-h", "-a", "-N", "-o", "%N %T %E", limit=20).output
    for line in sorted(set(output.splitlines())):
        node, state, reason = (*line.split(maxsplit=2), "", "", "")[:3]
        if state.startswith("drain") and reason.strip() == _DRAIN and node not in nodes:
            attempt("scontrol", "update", f"nodename={node}", "state=undrain", limit=20)
