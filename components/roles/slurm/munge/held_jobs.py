"""Hold jobs, and drain nodes, while the munge key changes.

The command `munge-release` lets partitions start jobs again that were held, and first drains nodes that do not prove
slurmctld's key:

    tailrack-munge-release         asks the nodes: the step that changed the key was killed, or takes too long
    tailrack-munge-release asked   uses the list of that step, which has just asked them
"""

from collections.abc import Mapping, Sequence

from components.node import files
from components.node.failure import Failure, run_program
from components.node.log import STATE_DIR, note
from components.node.run import Ended, attempt, run, succeeds
from components.node.waiting import wait_until
from components.roles.access.ssh_trust.ask import ask_all
from components.roles.slurm.munge.switch_key import KEY, digest_of, keep_late, late_nodes, take_folder
from components.slurm_commands import slurm

# Held partitions, one per line. tailrack-munge-release releases them, even if the step is killed.
HELD = f"{STATE_DIR}/munge.held"
RELEASE = "/usr/local/sbin/tailrack-munge-release"
# Seconds to wait for earlier messages to nodes; after which jobs start again even if the step is not done.
_QUIET = 10
_LONGEST = 50
_RELEASE_SECONDS = 20
# The node's own steps also recognize this reason (OUR_DRAINS in slurm/node_state.py).
_DRAIN = "tailrack: has another munge key"
_UNIT = "tailrack-munge-release"


def main(arguments: Sequence[str]) -> int:
    """Let jobs start again, and return the exit status. After a failure systemd runs this again."""
    return run_program(_UNIT, lambda: 0 if _release(asked=list(arguments) == ["asked"]) else 1)


def hold_jobs() -> None:
    """Let no job start, and wait until nodes have slurmctld's earlier messages."""
    rows = slurm.sinfo("%R %a", "-a")
    if rows is None:
        raise Failure("slurmctld does not answer", "see 'journalctl -u slurmctld'")
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
        slurm.scontrol("update", f"partitionname={name}", "state=down")
    if not wait_until(_no_pending_messages, _QUIET):
        note("some messages to nodes are still pending")


def _no_pending_messages() -> bool:
    if slurm.squeue("%A", "-t", "CF,CG"):
        return False
    counts = (line.partition(":") for line in attempt("sdiag").output.splitlines())
    return any(name == "Agent count" and count.strip() == "0" for name, _, count in counts)


def release_jobs(*, asked: bool) -> bool:
    """Let jobs start again; return whether they can. `asked`: the list of late nodes is exact."""
    if not files.exists(HELD):
        return True
    if not wait_until(lambda: _releases(asked=asked), _RELEASE_SECONDS):
        return False
    attempt("systemctl", "stop", f"{_UNIT}.timer", quiet=True)
    return True


def _releases(*, asked: bool) -> bool:
    try:
        return _release(asked=asked)
    except (Failure, OSError) as error:
        note(str(error))
        return False


def _release(*, asked: bool) -> bool:
    """Drain nodes without the key, and let jobs start; return whether slurmctld agreed to everything.

    Otherwise jobs stay held.
    """
    if not files.exists(HELD):
        return True
    late = late_nodes()
    if late and not asked:
        take_folder()
        late = without_key(ask_all(late, "munge-switch", digest_of(files.read(KEY) or "")))
        keep_late(late)
    if late and not _drain(late):
        return False
    partitions = [name for name in files.lines(HELD) if name]
    held = [name for name in partitions if not slurm.update(partitionname=name, state="up")]
    if held:
        return False
    files.remove(HELD)
    return True


def without_key(answers: Mapping[str, Ended]) -> list[str]:
    """Return the nodes whose answers to `munge-switch` do not prove this machine's key."""
    return [node for node, answer in answers.items() if not succeeds("unmunge", stdin=answer.output)]


def _drain(nodes: Sequence[str]) -> bool:
    """Drain nodes that would get jobs; return whether slurmctld agreed. A node that is already out keeps its reason.

    They reject jobs, and a job that cannot be requeued would be lost.
    """
    rows = slurm.sinfo("%N %T", "-a", "-N", limit=20)
    if rows is None:
        return False
    states = {row[0]: row[1] for row in sorted(rows, reverse=True)}
    names = [name for name in nodes if name in states and not states[name].startswith(("drain", "down", "fail"))]
    return not names or slurm.update(nodename=",".join(names), state="drain", reason=_DRAIN, limit=20)


def undrain_except(nodes: Sequence[str]) -> None:
    """Undrain nodes that were drained for their key and are not among these."""
    # sinfo names a node once for each of its partitions.
    for row in sorted({*map(tuple, slurm.sinfo("%N %T %E", "-a", "-N", limit=20) or ())}):
        node, state, reason = (*row, "", "")[:3]
        if state.startswith("drain") and reason.strip() == _DRAIN and node not in nodes:
            slurm.update(nodename=node, state="undrain", limit=20)
