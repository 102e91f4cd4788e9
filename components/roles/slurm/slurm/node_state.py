"""A node as the controller has it, and who drained it.

A step waits until the controller would give the node jobs, and has placed it in its site's switch.

The controller reads topology.conf only when it reconfigures, and then places all registered nodes, so one call serves
all that are joining. All of them see the same list, so without talking to each other the first by name of the known,
unplaced nodes makes the call once no other has appeared for 2 s, or at once if slurmctld knows all of the head node's
list; after 20 s any waiting node calls. The step on the head node calls only for a new GPU kind or a smaller memory
default. One call per step would be more than 32 calls for 32 nodes; in a step after all nodes, one failed node would
block the others, and two stacks do not know each other. Each call is a risk for running jobs.

Faults of the distributions' releases around a reconfiguration:
- 23.11.4 (Ubuntu 24.04): slurmd forgets jobs that started no step on its node yet; slurmctld rarely deadlocks.
- 24.11.5 (Debian 13): slurmctld hangs; a slow round of pings marks healthy nodes DOWN.
- 25.11.2 (Ubuntu 26.04): slurmctld crashes while prologs or epilogs end, or reading the state of a node that registered
  fewer GPUs than configured.
- All forget a node that registers between slurmctld's last save and the end of its listening.
From 25.11 on, `Topology=` in slurmd's `--conf` could place a node without a call, once all machines have it.

Live features, such as those of mounts, come and go while a node runs. Each role has a file with its own. They are not
part of the node's registration, so a change neither drains the node nor touches its jobs. A feature is
either available and active or neither: Slurm would restart a node for one that is only available.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from components.node import files, services
from components.node.failure import Failure
from components.node.locks import Lock
from components.node.log import STATE_DIR, note
from components.node.run import attempt, exists, succeeds
from components.node.waiting import now, sleep, wait_for, wait_until
from components.roles.slurm.slurm import controller
from components.slurm_commands import slurm
from components.slurm_commands.nodes import Node, node_names

LEAVES = "tailrack: leaves the cluster"
# Reasons with which steps drain a node; they resume it later. Any other reason belongs to a person or to the health
# check, even if it begins with "tailrack:".
OUR_DRAINS = re.compile(
    r"tailrack: (registers anew|leaves the cluster|runs no jobs any more|shuts down|has another munge key|containers.*)"
)
# tailrack-nhc, which runs as root, adds the failed script to Slurm's reason.
_SCRIPT_FAILED = re.compile(r"(Prolog|Epilog) error: (prolog|epilog)\.d/")
# Slurm adds sockets to the gres.
_SOCKETS = re.compile(r"\([^)]*\)")
_REGISTER_AGAIN_SECONDS = 30
# Seconds for the controller to see a started slurmd as usable.
REGISTER_LIMIT = 90
_CHECK_LIMIT = 60
_USABLE = frozenset({"IDLE", "MIXED", "ALLOCATED"})
_OUT = re.compile("NOT_RESPONDING|INVALID|DOWN|UNKNOWN")
_OUT_AND_DRAINED = re.compile("INVALID|NOT_RESPONDING|DOWN")
# munge rejects credentials with a clock difference of more than five minutes, and its errors do not mention clocks.
_CLOCK = re.compile("(Expired|Rewound) credential")
# Seconds for the controller to place this node; without a new arrival, before the first node by name reconfigures while
# more nodes are joining; before any node reconfigures itself; after a reconfiguration.
LIMIT, QUIET, WAIT = 120, 2, 20
_PLACED_LIMIT = 10
_PAUSE = 0.5
_LIST_LIMIT = 20
# The leaf switches only repeat topology.conf; the switch above them lists existing nodes.
_SWITCH = re.compile(r"^SwitchName=tailnet .*\bNodes=(\S+)", re.MULTILINE)
FEATURES = f"{STATE_DIR}/features"
_FEATURES_LIMIT = 30
_LOCK_SECONDS = 120


@dataclass(frozen=True)
class Registration:
    """The parts of a registration that a dynamic node sets only when it is created.

    reserved_mb   memory that jobs cannot use
    """

    features: frozenset[str]
    gres: str
    reserved_mb: int


def registration_of(node: Node) -> Registration:
    """Return the registration of a node."""
    return Registration(node.available, _SOCKETS.sub("", node.gres), node.reserved_mb)


def drained_by_step(node: Node) -> bool:
    """Return whether a step drained a node."""
    return node.drained and bool(OUR_DRAINS.fullmatch(node.reason))


def drained_by_slurm(node: Node) -> bool:
    """Return whether Slurm drained a node."""
    return node.drained and bool(node.reason) and (node.by == "slurm" or bool(_SCRIPT_FAILED.match(node.reason)))


def drained_by_person(node: Node) -> bool:
    """Return whether the reason is neither Slurm's nor a step's. The health check drains like a person."""
    return node.drained and bool(node.reason) and not drained_by_slurm(node) and not drained_by_step(node)


def read_or_register(name: str) -> Node | None:
    """Return this node, which registers again if the controller has forgotten it.

    A reconfiguring slurmctld saves its state before it stops listening (src/slurmctld/controller.c). It forgets nodes
    that register in between, and their slurmd does not notice.
    """
    node = slurm.node(name)
    if node or not controller.answers():
        return node
    note(f"the controller has no node {name}: restarting slurmd, which registers it")
    services.restart_later("slurmd")
    return wait_for(lambda: slurm.node(name), _REGISTER_AGAIN_SECONDS)


def drained_by_health() -> bool:
    """Return whether the node's health check (role health) drained it."""
    return exists("tailrack-nhc") and succeeds("tailrack-nhc", "--own")


class Usability:
    """Whether the controller talks to this node and would give it work."""

    def __init__(self, host: str, head_address: str) -> None:
        self._host = host
        self._head_address = head_address
        self._usable = False
        self._checked_again = False

    def require(self) -> None:
        """Wait until the node is usable. A drain of a person or of the health check stays.

        Raises Failure for a node that Slurm drained, which waiting does not change, and after a limit.
        """
        if wait_until(self._settled, REGISTER_LIMIT) and self._usable:
            return
        node = slurm.node(self._host)
        raise Failure(
            f"the controller at {self._head_address} does not see this node as usable "
            f"({f'{_flags(node)} {node.reason}'.strip() if node else 'it has no such node, or rejects its messages'})",
            f"see {services.log_of('slurmd', self._host)} and 'sinfo -R' on the head node{_clock_hint()}",
        )

    def _settled(self) -> bool:
        node = read_or_register(self._host)
        self._usable = node is not None and self._is_usable(node)
        return self._usable or (
            node is not None and drained_by_slurm(node) and not _OUT_AND_DRAINED.search(_flags(node))
        )

    def _is_usable(self, node: Node) -> bool:
        """Return whether the node is usable. Resume a drain that an unfinished step left."""
        note(f"node state: {_flags(node)} {node.reason}")
        if not _USABLE & node.flags or _OUT.search(_flags(node)):
            return False
        if drained_by_step(node):
            slurm.update(nodename=self._host, state="resume")
            return False
        if drained_by_person(node):
            return self._keep_drain(node.reason)
        return not node.drained

    def _keep_drain(self, reason: str) -> bool:
        if not drained_by_health():
            note(f"a person drained this node; it stays drained: {reason}")
        elif self._checked_again:
            note(f"the health check drained this node; it stays drained: {reason}")
        else:
            # The error may have cleared, such as a share that was unreachable with the tailnet. The timer checks every
            # two minutes only.
            self._checked_again = True
            if not attempt("tailrack-nhc", "--wait", limit=_CHECK_LIMIT).ok:
                note("the health check (tailrack-nhc) failed")
            return False
        return True


def _flags(node: Node) -> str:
    return "+".join(sorted(node.flags))


def _clock_hint() -> str:
    journal = attempt("journalctl", "-u", "slurmd", "-n", "50", "-o", "cat", "--no-pager").output
    different = "; the clocks of this node and the head node differ by more than five minutes"
    return different if _CLOCK.search(journal) else ""


def wait_for_place(host: str, head_address: str) -> bool:
    """Wait until this node has a place, and return whether it had none. Raises Failure."""
    begin = waited = quiet = now()
    unplaced: list[str] = []
    placed = _placed_nodes()
    if placed and host in placed:
        return False
    while now() - begin < LIMIT:
        registered = _registered_nodes(host)
        if registered is not None and placed is not None and (current := sorted(registered - placed)) != unplaced:
            unplaced, quiet = current, now()
        # The first node may have no place in the file.
        if now() - waited >= WAIT or (
            unplaced[:1] == [host] and (now() - quiet >= QUIET or _all_registered(registered or set(), head_address))
        ):
            note(f"reconfiguring slurmctld to place {' '.join(unplaced)}")
            if not slurm.reconfigure():
                note("slurmctld rejects its configuration")
            if wait_until(lambda: host in (_placed_nodes() or ()), _PLACED_LIMIT):
                return True
            note("slurmctld has not placed this node yet")
            waited = quiet = now()
        else:
            sleep(_PAUSE)
        placed = _placed_nodes()
        if placed and host in placed:
            return True
    raise Failure(
        "the controller does not place this node in its site's switch",
        "see 'journalctl -u slurmctld' and /etc/slurm/topology.conf on the head node",
    )


def _placed_nodes() -> set[str] | None:
    """Return the nodes that the controller has placed; None without an answer."""
    topology = slurm.topology()
    if topology is None:
        return None
    switch = _SWITCH.search(topology)
    return set(node_names(switch[1])) if switch else set()


def _registered_nodes(host: str) -> set[str] | None:
    """Return the nodes that the controller has; None without an answer. This node registers again if it is missing."""
    nodes = _all_nodes()
    if nodes is not None and host not in nodes and read_or_register(host):
        nodes = _all_nodes()
    return nodes


def _all_nodes() -> set[str] | None:
    rows = slurm.sinfo("%N", "-a", "-N")
    return None if rows is None else {row[0] for row in rows}


def _all_registered(registered: set[str], head_address: str) -> bool:
    """Return whether all nodes are registered that the head node lists (role names), even before their slurmd runs.

    A node whose join broke off costs some seconds, and one that is not listed yet costs one more reconfiguration.
    """
    rows = [line.split() for line in _listed_nodes()]
    names = {row[1] for row in rows if len(row) > 1 and row[0] != head_address}
    return any(row[:1] == [head_address] for row in rows) and names <= registered


def _listed_nodes() -> list[str]:
    """Return the lines of the list: `address name`."""
    share = files.read(f"{STATE_DIR}/names-from")
    if share is None:
        return files.lines(f"{STATE_DIR}/names")
    # A share may not answer.
    return attempt("cat", "--", share.strip(), limit=_LIST_LIMIT, quiet=True).output.splitlines()


def live_features() -> frozenset[str]:
    """Return the features that roles have set, or are about to set."""
    names = files.names_in(FEATURES)
    return frozenset(line for name in names for line in files.lines(f"{FEATURES}/{name}") if line)


def set_live_features(host: str, role: str, features: Collection[str]) -> bool:
    """Give this node a role's features, and take its former ones. Return whether Slurm has them now."""
    path = f"{FEATURES}/{role}"
    with Lock("features", seconds=_LOCK_SECONDS):
        own = {line for line in files.lines(path) if line} | {*features}
        if not own:
            return True
        # Note them first: a step that reads the node in between must not take them for its registration.
        files.write(path, "\n".join(sorted(own)))
        if not _update(host, own, {*features}):
            return False
        if features:
            files.write(path, "\n".join(sorted(features)))
        else:
            files.remove(path)
            files.remove_if_empty(FEATURES)
    return True


def _update(host: str, own: Collection[str], wanted: Collection[str]) -> bool:
    node = slurm.node(host, _FEATURES_LIMIT)
    if node is None:
        return False
    features = {*(node.available - {*own}), *wanted}
    if node.available == node.features == features:
        return True
    text = ",".join([*sorted(node.available - {*own}), *sorted(wanted)])
    note(f"features of {host}: {text}")
    return slurm.update(nodename=host, availablefeatures=text, activefeatures=text, limit=_FEATURES_LIMIT)
