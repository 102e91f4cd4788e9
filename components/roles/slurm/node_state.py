"""A node as the controller has it, and who drained it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from components.node import services
from components.node.log import note
from components.node.run import attempt
from components.node.waiting import wait_for
from components.roles.slurm import controller
from components.validation.json_part import first_object, objects_in
from components.validation.slurm_nodes import number

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


@dataclass(frozen=True)
class Registration:
    """The parts of a registration that a dynamic node sets only when it is created.

    reserved_mb   memory that jobs cannot use
    """

    features: frozenset[str]
    gres: str
    reserved_mb: int


@dataclass(frozen=True)
class NodeState:
    """A node.

    flags   `IDLE`, `DRAIN`, ...
    reason  why it is out, `by` whom (`slurm` for Slurm itself)
    cpus, memory_mb   its size; 0 if slurmctld does not report it
    """

    flags: tuple[str, ...]
    reason: str
    by: str
    registration: Registration
    cpus: int
    memory_mb: int

    @property
    def state(self) -> str:
        """Return its flags as Slurm prints them."""
        return "+".join(self.flags)

    @property
    def drained(self) -> bool:
        return "DRAIN" in self.flags

    @property
    def drained_by_step(self) -> bool:
        return self.drained and bool(OUR_DRAINS.fullmatch(self.reason))

    @property
    def drained_by_slurm(self) -> bool:
        return self.drained and bool(self.reason) and (self.by == "slurm" or bool(_SCRIPT_FAILED.match(self.reason)))

    @property
    def drained_by_person(self) -> bool:
        """Whether the reason is neither Slurm's nor a step's. The health check drains like a person."""
        return self.drained and bool(self.reason) and not self.drained_by_slurm and not self.drained_by_step


def read_node(name: str) -> NodeState | None:
    """Return a node; None if the controller does not have it or does not answer."""
    shown = attempt("scontrol", "show", "node", name, "--json", quiet=True)
    answer, _ = first_object(shown.output, lambda entry: "nodes" in entry)
    for node in objects_in(answer, "nodes"):
        return NodeState(
            tuple(map(str, node.get("state") or ())),
            str(node.get("reason") or ""),
            str(node.get("reason_set_by_user") or ""),
            Registration(
                frozenset(map(str, node.get("features") or ())),
                _SOCKETS.sub("", str(node.get("gres") or "")),
                number(node.get("specialized_memory")),
            ),
            number(node.get("cpus")),
            number(node.get("real_memory")),
        )
    return None


def read_or_register(name: str) -> NodeState | None:
    """Return this node, which registers again if the controller has forgotten it.

    A reconfiguring slurmctld saves its state before it stops listening (src/slurmctld/controller.c). It forgets nodes
    that register in between, and their slurmd does not notice.
    """
    node = read_node(name)
    if node or not controller.answers():
        return node
    note(f"the controller has no node {name}: restarting slurmd, which registers it")
    services.restart_later("slurmd")
    return wait_for(lambda: read_node(name), _REGISTER_AGAIN_SECONDS)
