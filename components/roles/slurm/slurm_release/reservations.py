"""Reservations of nodes that change their release: a node's turn, and nodes that wait for the release.

Slurm replaces slurmd on one node of the cluster at a time, across all stacks. No job starts on a reserved node, and
running jobs continue. The turn of an interrupted step ends on its own.

Since 25.11 srun uses only its own machine's release (versions.py of role slurm), so with such a release on the head
node it cannot start steps on older nodes.
"""

from components.node import files, systemd
from components.node.failure import Failure
from components.node.locks import PRIVATE
from components.node.log import note
from components.node.step.step import Step
from components.node.waiting import sleep, wait_until
from components.roles.slurm.slurm import controller
from components.roles.slurm.slurm.folders import copy_configuration, with_configuration
from components.roles.slurm.slurm.versions import ONE_RELEASE_SINCE, is_older, release_of
from components.slurm_commands import slurm
from components.slurm_commands.nodes import node_names

_TURN = "tailrack-release"
# Minutes of a turn, from stopping slurmd until it is back.
_MINUTES = 15
# Seconds to wait for a turn.
LIMIT = 3600
_ANSWER_LIMIT = 60
_COMMAND_LIMIT = 20
# A copy of the configuration of this machine's commands. It exists while the machine has a turn.
_CONFIGURATION = f"{PRIVATE}/slurm-turn"
_WAITING = "tailrack-older"


def take_turn(step: Step) -> None:
    """Wait for this node's turn, if its slurmd could get jobs. It ends with the step at the latest."""
    if not systemd.is_active("slurmd"):
        return
    if not wait_until(lambda: slurm.config("ClusterName", _COMMAND_LIMIT) is not None, _ANSWER_LIMIT):
        raise Failure(
            "the controller does not answer, and it decides which node gets another release next",
            f"see 'scontrol ping' on {step.host} and 'systemctl status slurmctld' on the head node, then run up again",
        )
    # A node that the controller does not have gets no jobs, and cannot be reserved.
    if not slurm.has_node(step.host, _COMMAND_LIMIT):
        return
    last, error = "none", ""

    def has_turn() -> bool:
        nonlocal last, error
        created = slurm.reserve(_TURN, duration=str(_MINUTES), nodes=step.host)
        if created.ok:
            return True
        error, holder = created.errors.strip().rpartition("\n")[2], slurm.reserved_nodes(_TURN)
        if holder == step.host:
            # Left by an interrupted run of this step.
            slurm.delete(reservationname=_TURN)
            return False
        if holder != last:
            note(f"waiting for a turn{f'; {holder} is getting its release now' if holder else ''}")
        last = holder
        # All waiting nodes ask the same controller.
        sleep(2)
        return False

    if not wait_until(has_turn, LIMIT):
        raise Failure(
            f"waited {LIMIT}s for other nodes, which get their release one at a time{f' ({error})' if error else ''}",
            f"see 'scontrol show reservation {_TURN}'; run up again: nodes that already have the release need no turn",
        )
    copy_configuration(_CONFIGURATION)
    step.at_end.append(lambda: end_turn(step.host))


def end_turn(host: str) -> None:
    """End this node's turn, if it has one."""
    if not files.is_folder(_CONFIGURATION):
        return
    environment = with_configuration(_CONFIGURATION)
    # The turn may have ended on its own, and another node may have one now.
    has_turn = slurm.reserved_nodes(_TURN, environment) == host
    if has_turn and not slurm.delete(reservationname=_TURN, limit=_COMMAND_LIMIT, environment=environment):
        note(f"the turn of {host} ends on its own after {_MINUTES} minutes")
    files.remove_folder(_CONFIGURATION)


def hold_older_nodes(host: str, version: str) -> bool:
    """Reserve older nodes, and return whether slurmctld did it.

    It runs on the head node while the old controller still answers.

    version   of the new release
    """
    release = release_of(version)
    if is_older(release, ONE_RELEASE_SINCE):
        return True
    rows = slurm.sinfo("%N %v", "-a", "-N", limit=_COMMAND_LIMIT)
    if rows is None:
        return False
    nodes = ",".join(sorted({row[0] for row in rows if row[0] != host and not row[-1].startswith(f"{release}.")}))
    if not nodes:
        return True
    note(f"no job starts on {nodes} until these nodes have the release")
    if _waiting_nodes():
        return slurm.update(reservationname=_WAITING, nodes=nodes)
    return slurm.reserve(_WAITING, duration="infinite", nodes=nodes).ok


def unreserve_node(name: str) -> None:
    """Remove a node from the reservation, because it has the release or leaves."""
    if not wait_until(lambda: _leave_reservation(name), _COMMAND_LIMIT):
        note(f"{name} is still in the reservation {_WAITING}")


def _leave_reservation(name: str) -> bool:
    waiting = _waiting_nodes()
    if name not in waiting:
        # Without an answer no node is listed.
        return controller.answers()
    if waiting == [name]:
        return slurm.delete(reservationname=_WAITING)
    return slurm.remove_reserved(_WAITING, name)


def _waiting_nodes() -> list[str]:
    return node_names(slurm.reserved_nodes(_WAITING))
