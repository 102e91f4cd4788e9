"""The nodes of a measurement and their jobs, as Slurm reports them on the head node, and which of them take part."""

import re
import socket
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from components.slurm_commands import slurm
from components.slurm_commands.nodes import node_names
from components.validation.preflight.drain import ERRORS_OF_SLURM

# Uses of a node: it runs no job, it runs other jobs, or it can run no job.
IDLE, BUSY, OUT = "idle", "busy", "out"
# In this state a node has no job and gets none. Waiting does not end it.
DRAINED = "drained"
_BUSY_STATES = re.compile(r"(allocated|mixed|completing|planned|reserved|blocked)[-+]?|idle-")
# Slurm keeps old reasons of nodes in other states.
_WITH_REASON = ("drain", "down", "fail")
_SLURMD_PORT, _CONNECT_SECONDS, _CONNECTIONS = 6818, 8, 64
_OWN_JOB = re.compile(r"(validate|prepare)-")


@dataclass(frozen=True)
class Member:
    """A node of the scope: its name, site and tailnet address."""

    name: str
    site: str
    address: str


@dataclass(frozen=True)
class Node:
    """A node with its use.

    is_new   whether it was never measured in this scope at this address
    state    Slurm's state; empty if Slurm does not know it
    """

    name: str
    site: str
    use: str
    is_new: bool
    state: str
    reason: str = ""

    def __str__(self) -> str:
        age = "new" if self.is_new else "old"
        return " ".join(filter(None, (self.name, self.site, self.use, age, self.state, self.reason)))


@dataclass(frozen=True)
class Job:
    """A job that has nodes; `measures`: whether it is one of a measurement."""

    user: str
    nodes: Collection[str]
    number: str
    left: str
    measures: bool


@dataclass
class States:
    """The states of a scope's nodes, as Slurm reported them last.

    measured   addresses at which nodes were measured in this scope, by name
    silent     nodes that do not answer the head node
    """

    members: Sequence[Member]
    measured: Mapping[str, str]
    silent: Collection[str]
    nodes: Sequence[Node] = field(default=())

    @property
    def all_idle(self) -> bool:
        return bool(self.nodes) and not self.not_idle

    @property
    def not_idle(self) -> list[Node]:
        return [node for node in self.nodes if node.use != IDLE]

    @property
    def explained(self) -> bool:
        """Whether no node's reason lacks the script that failed, which the node adds after some seconds."""
        return not any(node.reason in ERRORS_OF_SLURM for node in self.nodes)

    def has(self, use: str) -> bool:
        """Return whether a node has this use."""
        return any(node.use == use for node in self.nodes)

    def read(self) -> bool:
        """Read the states again, and return whether slurmctld answered and all nodes are idle."""
        states = _states()
        if states and (mixed := [name for name, (state, _) in states.items() if state == "mixed"]):
            # After a reconfiguration during a job, slurmctld (24.11) lists the job's node as mixed even after the job
            # has ended, until a query for that node alone.
            for name in mixed:
                slurm.has_node(name)
            states = _states()
        if states is None:
            return False
        self.nodes = [self._node(member, *states.get(member.name, ("", ""))) for member in self.members]
        return self.all_idle

    def _node(self, member: Member, state: str, reason: str) -> Node:
        if member.name in self.silent:
            state, reason, use = "unreachable", "no answer at port 6818 over the tailnet", OUT
        else:
            use = IDLE if state == "idle" else BUSY if _BUSY_STATES.fullmatch(state) else OUT
        is_new = self.measured.get(member.name) != member.address
        return Node(member.name, member.site, use, is_new, state, reason)


def _states() -> dict[str, tuple[str, str]] | None:
    """Return the state of each node, and the reason of a drained or down one; None if slurmctld does not answer."""
    rows = slurm.sinfo("%N %T %E", "-N")
    return None if rows is None else dict(map(_state, rows))


def _state(row: Sequence[str]) -> tuple[str, tuple[str, str]]:
    name, state, reason = (*row, "", "")[:3]
    reason = reason.strip()
    has_reason = state.startswith(_WITH_REASON) and reason.partition(" ")[0] != "none"
    return name, (state, reason if has_reason else "")


def unreachable(members: Sequence[Member]) -> frozenset[str]:
    """Return the nodes whose slurmd does not answer the head node over the tailnet.

    They may still reach slurmctld, so Slurm may report them as idle, but a job on them would never start.
    """
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        answers = list(pool.map(lambda member: answers_at(member.address), members))
    return frozenset(member.name for member, answer in zip(members, answers, strict=True) if not answer)


def answers_at(address: str) -> bool:
    """Return whether slurmd accepts a connection at an address."""
    for pause in (1, 0):
        try:
            socket.create_connection((address, _SLURMD_PORT), _CONNECT_SECONDS).close()
        except OSError:
            time.sleep(pause)
        else:
            return True
    return False


def jobs(measuring: str) -> list[Job]:
    """Return the jobs that have nodes. `measuring`: the user who submits the jobs of measurements."""
    rows = [row for row in slurm.squeue("%u %i %L %N") or () if len(row) == 4]
    return [
        Job(user, _names(nodes), number, left, user == measuring and bool(_OWN_JOB.match(_name_of(number))))
        for user, number, left, nodes in rows
    ]


def _name_of(number: str) -> str:
    """Return a job's name. A user chose it, and it may contain anything: it is asked for alone."""
    return "".join(name for name, *_ in slurm.squeue("%j", "-j", number) or ())


def _names(hostlist: str) -> frozenset[str]:
    try:
        return frozenset(node_names(hostlist))
    except ValueError:
        return frozenset()


def new_and_peers(nodes: Sequence[Node]) -> list[str]:
    """Return the new nodes, one idle peer at each of their sites, and one at another site if the scope spans sites.

    Return nothing if no node is new, a new node is busy, or a peer is missing. Nodes that are out do not count.
    """
    nodes = [node for node in nodes if node.use != OUT]
    new = [node for node in nodes if node.is_new]
    if any(node.use != IDLE for node in new):
        return []
    peers = [node for node in nodes if node.use == IDLE and not node.is_new]
    sites = _sites(new)
    first_at = {peer.site: peer for peer in reversed(peers)}
    chosen = [*new, *(first_at[site] for site in sites & first_at.keys())]
    if len(sites) == 1:
        chosen += [peer for peer in peers if peer.site not in sites][:1]
    return _if_enough([node for node in nodes if node in chosen], nodes) if new else []


def any_idle(nodes: Sequence[Node], most: int) -> list[str]:
    """Return `most` idle nodes, or all of them for 0, of as many sites as possible; nothing if they are not enough."""
    before: Counter[str] = Counter()
    ranked: list[tuple[int, Node]] = []
    for node in (node for node in nodes if node.use == IDLE):
        ranked.append((before[node.site], node))
        before[node.site] += 1
    chosen = [node for _, node in sorted(ranked, key=lambda item: item[0])][: most or None]
    return _if_enough([node for node in nodes if node in chosen], nodes) if len(chosen) >= most else []


def _if_enough(chosen: Sequence[Node], nodes: Sequence[Node]) -> list[str]:
    """Return the names of nodes if there are two, and from two sites if the scope spans sites."""
    enough = len(chosen) >= 2 and len(_sites(chosen)) >= min(len(_sites(nodes)), 2)
    return [node.name for node in chosen] if enough else []


def _sites(nodes: Sequence[Node]) -> set[str]:
    return {node.site for node in nodes}


def absent(nodes: Sequence[Node], chosen: Collection[str]) -> dict[str, str]:
    """Return why nodes without other jobs are left out, by name."""
    out = {node.name: _reason(node) for node in nodes if node.use == OUT}
    idle = [node for node in nodes if node.use == IDLE and node.name not in chosen]
    return {**out, **{node.name: "others were enough" if node.is_new else "measured before" for node in idle}}


def _reason(node: Node) -> str:
    state = node.state or "unknown to Slurm"
    return f"{state}: {node.reason}" if node.reason else state
