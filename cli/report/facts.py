"""What a stack's outputs say, in the words and the order in which the terminal and the page show it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from cli.output.terminal import one_line
from components.settings.types import NODE
from components.validation.preflight.tailnet import TRAFFIC
from components.validation.table import bandwidth, scopes_of
from components.validation.verdict import Result

_WORST_FIRST = ("error", "warning", "info")
# What the preflight says of a pair under "tailnet traffic", and under "tailnet path".
_TRAFFIC = re.compile(
    r"(?P<name>\S+) by (?P<path>direct|relay|peer-relay|idle): "
    r"(?P<sent>\d{1,18}) B sent, (?P<received>\d{1,18}) B received",
    re.ASCII,
)
_REACHED = re.compile(
    r"(?P<name>\S+) is reached (?:through a |by way of a )?(?P<path>direct|relay|peer-relay)(?:ly)?\b"
)


@dataclass(frozen=True)
class Scope:
    """One measurement. `title` names it among all of them: a node by itself is `node b1`."""

    name: str
    title: str
    result: Result

    @property
    def optional(self) -> Mapping[str, Any]:
        """The result, by `get`: outputs of an earlier version, still in the state, lack what was added since."""
        return cast(Mapping[str, Any], self.result)

    @property
    def reason(self) -> str:
        """Why the verdict is what it is; holds what programs on the nodes have printed."""
        return one_line(self.result["reason"])

    @property
    def how(self) -> str:
        """What measured, where, and over what."""
        result, collective = self.result, self.optional.get("collective") or "all_reduce"
        program = result["backend"] if collective == "all_reduce" else f"{result['backend']} {collective}"
        if result["ranks"] is None:
            return program
        gpus = ", ".join(dict.fromkeys((self.optional.get("gpus") or {}).values()))
        where = f"{result['ranks']} ranks on {', '.join(result['nodes'])}{f' ({gpus})' if gpus else ''}"
        return f"{program}, {where}; {self.transport}"

    @property
    def transport(self) -> str:
        """What carried the data, and what should have, where that is another."""
        name, interface = self.result["transport"], self.result["interface"]
        if not name:
            return "transport unknown"
        over = one_line(f"{name} over {interface}" if interface else name)
        expected = self.optional.get("expected_transport")
        return over if not expected or name.startswith(expected) or expected == "sockets" else f"{over}, not {expected}"

    @property
    def versions(self) -> str:
        """The versions of the programs that measured, such as `NCCL 2.28.9, CUDA 13.0`; empty if none is known."""
        known = self.optional.get("versions") or {}
        return one_line(", ".join(f"{name} {version}" for name, version in known.items()))

    @property
    def margin(self) -> str:
        """How far the runs lie apart, and where the floor is from."""
        spread, source = self.optional.get("spread"), self.optional.get("floor_source")
        words = []
        if spread:
            runs = ", ".join(bandwidth(each) for each in spread["runs"])
            words.append(f"Runs of {runs} GB/s, within {spread['relative']:.1%} of one another.")
        if source and source != "config" and self.result["busbw_gb_per_s"] is not None:
            words.append(f"The floor: {source}.")
        return " ".join(words)

    @property
    def findings(self) -> list[dict[str, str]]:
        """The preflight's findings but for what went between nodes, errors first, each with its node."""
        return [one for one in self._found if one["check"] != TRAFFIC]

    @property
    def _found(self) -> list[dict[str, str]]:
        found = self.optional.get("preflight") or {}
        each = [
            {"node": node, **{key: one_line(str(value)) for key, value in one.items()}}
            for node in found
            for one in found[node]
        ]
        return sorted(each, key=lambda one: (_rank(one["severity"]), one["node"]))

    @property
    def traffic(self) -> list[dict[str, str]]:
        """Of the findings, what went between two nodes."""
        return [one for one in self._found if one["check"] == TRAFFIC]

    @property
    def suspects(self) -> list[Mapping[str, Any]]:
        """Nodes and links that hold the others back."""
        return list(self.optional.get("suspects") or [])

    @property
    def accusations(self) -> list[str]:
        """What there is to say of the suspects and is not in the reason already."""
        each = [one_line(suspect["reason"]) for suspect in self.suspects]
        return [reason for reason in each if reason not in self.reason]


def _rank(severity: str) -> int:
    return _WORST_FIRST.index(severity) if severity in _WORST_FIRST else len(_WORST_FIRST)


def scopes(outputs: Mapping[str, Any]) -> list[Scope]:
    """Sites, then what lies between them: that is understood after what they are."""
    found = {name: result for name, result in (outputs.get("validation") or {}).items() if name != NODE}
    return [Scope(name, name, cast(Result, result)) for name, result in scopes_of(found)]


def single_nodes(outputs: Mapping[str, Any]) -> list[Scope]:
    """The nodes that were measured by themselves."""
    found = (outputs.get("validation") or {}).get(NODE) or {}
    return [Scope(name, f"{NODE} {name}", cast(Result, found[name])) for name in sorted(found)]


def nodes_beside_sites(outputs: Mapping[str, Any]) -> list[Scope]:
    """The same without those that are a site of their own, told and judged there alike: that is one measurement."""
    sites = {(scope.optional.get("job_id"), scope.result["verdict"]) for scope in scopes(outputs)}
    return [
        scope
        for scope in single_nodes(outputs)
        if (job := scope.optional.get("job_id")) is None or (job, scope.result["verdict"]) not in sites
    ]


def all_scopes(outputs: Mapping[str, Any]) -> list[Scope]:
    """Everything that was measured, the smallest first."""
    return [*single_nodes(outputs), *scopes(outputs)]


def node_facts(node: Mapping[str, Any]) -> dict[str, str]:
    """What is known of a node, column by column."""
    columns = {
        "node": "name",
        "site": "site",
        "tailnet address": "tailnet_ip",
        "path": "path",
        "CPUs": "cpus",
        "memory": "memory_mb",
        "GPUs": "gpus",
        "Slurm": "slurm_version",
        "Tailscale": "tailscale_version",
    }
    facts = {column: "unknown" if node[key] is None else one_line(str(node[key])) for column, key in columns.items()}
    return {**facts, "memory": f"{facts['memory']} MB"}


@dataclass(frozen=True)
class Pair:
    """Two nodes: how they reach each other in the tailnet, and what one has told of bytes; None where none did."""

    one: str
    other: str
    path: str
    sent: int | None = None  # from one to the other
    received: int | None = None

    @property
    def carried(self) -> str:
        """What went between them, in words."""
        if self.sent is None or self.received is None:
            return "not known"
        return f"{_amount(self.sent)} to {self.other}, {_amount(self.received)} to {self.one}"


def _amount(count: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"


def pairs(outputs: Mapping[str, Any]) -> list[Pair]:
    """Return the pairs of nodes of which something is known, in the order of the nodes.

    Known are each node's path to the head node as it joined, and what the preflight saw: the path to the next node, and
    to those that a node exchanged most with. What the preflight saw is the newer.
    """
    head, *nodes = (node["name"] for node in outputs["cluster"]["nodes"])
    order = [head, *nodes]
    joined = zip(nodes, outputs["cluster"]["nodes"][1:], strict=True)
    found = {frozenset((name, head)): Pair(head, name, str(node["path"])) for name, node in joined}
    for scope in scopes(outputs):
        for told in scope.findings:
            seen = _REACHED.match(told["seen"]) if told["check"] == "tailnet path" else None
            if seen and {seen["name"], told["node"]} <= {*order} and seen["name"] != told["node"]:
                found[frozenset((told["node"], seen["name"]))] = Pair(told["node"], seen["name"], seen["path"])
        for told in scope.traffic:
            seen = _TRAFFIC.fullmatch(told["seen"])
            if seen and {seen["name"], told["node"]} <= {*order} and seen["name"] != told["node"]:
                both = frozenset((told["node"], seen["name"]))
                before = found.get(both)
                path = before.path if seen["path"] == "idle" and before else seen["path"]
                found[both] = Pair(told["node"], seen["name"], path, int(seen["sent"]), int(seen["received"]))
    return sorted(found.values(), key=lambda pair: sorted((order.index(pair.one), order.index(pair.other))))


def site_paths(outputs: Mapping[str, Any]) -> tuple[list[str], dict[tuple[str, str], dict[str, int]]]:
    """The sites, and for two of them how many pairs of nodes are known to reach each other by which path."""
    site_of = {node["name"]: node["site"] for node in outputs["cluster"]["nodes"]}
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for pair in pairs(outputs):
        ends = sorted((site_of[pair.one], site_of[pair.other]))
        for here, there in {(ends[0], ends[-1]), (ends[-1], ends[0])}:
            cell = counts.setdefault((here, there), {})
            cell[pair.path] = cell.get(pair.path, 0) + 1
    return sorted(set(site_of.values())), counts
