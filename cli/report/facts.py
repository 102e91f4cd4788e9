"""The facts of a stack's outputs, in the order of the terminal's tables and the report page."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cli.output.terminal import one_line
from components.settings.types import NODE
from components.validation.preflight.tailnet import TRAFFIC
from components.validation.results import COLUMNS, bandwidth, scopes_of, table_rows
from components.validation.verdict import Result

_WORST_FIRST = ("error", "warning", "info")
# The preflight's text about a pair of nodes in "tailnet traffic", and in "tailnet path".
_TRAFFIC = re.compile(
    r"(?P<name>\S+) by (?P<path>direct|relay|peer-relay|idle): "
    r"(?P<sent>\d{1,18}) B sent, (?P<received>\d{1,18}) B received\Z",
    re.ASCII,
)
_REACHED = re.compile(
    r"(?P<name>\S+) is reached (?:through a |by way of a )?(?P<path>direct|relay|peer-relay)(?:ly)?\b"
)


@dataclass(frozen=True)
class Judgement:
    """One result; `title` is unique among all of them: a single node is `node b1`."""

    title: str
    result: Result

    @property
    def verdict(self) -> str:
        return str(self.result["verdict"])

    @property
    def reason(self) -> str:
        """Return the reason of the verdict, which may contain output of programs on the nodes."""
        return one_line(str(self.result["reason"]))

    @property
    def text(self) -> str:
        """Return the reason, and what to know about the figures."""
        return self.reason

    @property
    def reasons(self) -> list[str]:
        """Return further reasons that are not already in the verdict's reason."""
        return []

    @property
    def retries(self) -> int:
        """Return how often in a row it was BUSY before."""
        return int(self.result.get("retries") or 0)


@dataclass(frozen=True)
class Scope(Judgement):
    """One measurement of bus bandwidth."""

    name: str

    @property
    def how(self) -> str:
        """Return the program, the nodes and the transport of the measurement."""
        result, collective = self.result, self.result.get("collective") or "all_reduce"
        program = result["backend"] if collective == "all_reduce" else f"{result['backend']} {collective}"
        if result["ranks"] is None:
            return program
        gpus = ", ".join(dict.fromkeys((self.result.get("gpus") or {}).values()))
        participants = f"{result['ranks']} ranks on {', '.join(result['nodes'])}{f' ({gpus})' if gpus else ''}"
        return f"{program}, {participants}; {self.transport}"

    @property
    def rows(self) -> list[dict[str, str]]:
        """Return the figures of each size by column."""
        return [dict(zip(COLUMNS, row, strict=True)) for row in table_rows(self.result)]

    @property
    def transport(self) -> str:
        """Return the transport, and the expected one if it differs."""
        name, interface = self.result["transport"], self.result["interface"]
        if not name:
            return "transport unknown"
        over = one_line(f"{name} over {interface}" if interface else name)
        expected = self.result.get("expected_transport")
        return over if not expected or name.startswith(expected) or expected == "sockets" else f"{over}, not {expected}"

    @property
    def versions(self) -> str:
        """Return the versions of the measuring programs, such as `NCCL 2.28.9, CUDA 13.0`; empty if unknown."""
        versions_ = self.result.get("versions") or {}
        return one_line(", ".join(f"{name} {version}" for name, version in versions_.items()))

    @property
    def text(self) -> str:
        """Return the reason, the spread of the runs, and the source of the floor."""
        spread, source = self.result.get("spread"), self.result.get("floor_source")
        sentences = [self.reason] if self.reason else []
        if spread:
            runs = ", ".join(bandwidth(rate) for rate in spread["runs"])
            sentences.append(f"Runs of {runs} GB/s, within {spread['relative']:.1%} of one another.")
        if source and source != "config" and self.result["busbw_gb_per_s"] is not None:
            sentences.append(f"The floor: {source}.")
        return " ".join(sentences)

    @property
    def findings(self) -> list[dict[str, str]]:
        """Return the preflight's findings without traffic, errors first, each with its node."""
        return [finding for finding in self._all_findings if finding["check"] != TRAFFIC]

    @property
    def _all_findings(self) -> list[dict[str, str]]:
        by_node = self.result.get("preflight") or {}
        findings_ = [
            {"node": node, **{key: one_line(str(value)) for key, value in finding.items()}}
            for node in by_node
            for finding in by_node[node]
        ]
        return sorted(findings_, key=lambda finding: (_rank(finding["severity"]), finding["node"]))

    @property
    def traffic(self) -> list[dict[str, str]]:
        return [finding for finding in self._all_findings if finding["check"] == TRAFFIC]

    @property
    def suspects(self) -> list[Mapping[str, Any]]:
        return list(self.result.get("suspects") or [])

    @property
    def reasons(self) -> list[str]:
        reasons = [one_line(suspect["reason"]) for suspect in self.suspects]
        return [reason for reason in reasons if reason not in self.reason]


def _rank(severity: str) -> int:
    return _WORST_FIRST.index(severity) if severity in _WORST_FIRST else len(_WORST_FIRST)


def scopes(outputs: Mapping[str, Any]) -> list[Scope]:
    """Return the measurements of sites, then those between sites."""
    results = {name: result for name, result in (outputs.get("validation") or {}).items() if name != NODE}
    return [
        scope
        for name, result in scopes_of(results)
        for scope in (Scope(name, result, name), *_further_collectives(name, result))
    ]


def _further_collectives(name: str, result: Result) -> list[Scope]:
    empty: dict[str, Any] = {"preflight": {}, "suspects": [], "history": []}
    others = (result.get("collectives") or {}).items()
    return [Scope(f"{name}, {collective}", {**result, **empty, **other}, name) for collective, other in others]


def single_nodes(outputs: Mapping[str, Any]) -> list[Scope]:
    """Return the measurements of single nodes."""
    results = (outputs.get("validation") or {}).get(NODE) or {}
    return [Scope(f"{NODE} {name}", results[name], name) for name in sorted(results)]


def separate_nodes(outputs: Mapping[str, Any]) -> list[Scope]:
    """Return the measurements of single nodes that are not also a site's measurement with the same verdict."""
    sites = {(scope.result.get("job_id"), scope.verdict) for scope in scopes(outputs)}
    return [
        scope
        for scope in single_nodes(outputs)
        if (job := scope.result.get("job_id")) is None or (job, scope.verdict) not in sites
    ]


def all_scopes(outputs: Mapping[str, Any]) -> list[Scope]:
    """Return all measurements, the smallest scopes first."""
    return [*single_nodes(outputs), *scopes(outputs)]


def node_facts(node: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts about a node by column."""
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
    """Two nodes, their path in the tailnet, and the bytes that one of them reported; None if neither did."""

    first: str
    second: str
    path: str
    sent: int | None = None  # from first to second
    received: int | None = None

    @property
    def carried(self) -> str:
        if self.sent is None or self.received is None:
            return "not known"
        return f"{_amount(self.sent)} to {self.second}, {_amount(self.received)} to {self.first}"


def _amount(count: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"


def pairs(outputs: Mapping[str, Any]) -> list[Pair]:
    """Return the pairs of nodes with known facts, in the order of the nodes.

    The facts are each node's path to the head node when it joined, and the preflight's newer ones: the path to the next
    node and to the nodes with the most traffic.
    """
    paths = {node["name"]: str(node["path"]) for node in outputs["cluster"]["nodes"]}
    # The head node of a pool's cluster is not among the pool's nodes.
    order, head = [*paths], outputs["cluster"].get("head", next(iter(paths), ""))
    joined = [name for name in order if name != head] if head in paths else []
    by_ends = {frozenset((name, head)): Pair(head, name, paths[name]) for name in joined}
    for scope in scopes(outputs):
        for finding in [*scope.findings, *scope.traffic]:
            pattern = {"tailnet path": _REACHED, TRAFFIC: _TRAFFIC}.get(finding["check"])
            match = pattern.match(finding["seen"]) if pattern else None
            if not match or not {match["name"], finding["node"]} <= {*order} or match["name"] == finding["node"]:
                continue
            ends, counts = frozenset((finding["node"], match["name"])), match.groupdict()
            old = by_ends.get(ends)
            path = old.path if match["path"] == "idle" and old else match["path"]
            bytes_ = [int(counts[way]) if way in counts else None for way in ("sent", "received")]
            by_ends[ends] = Pair(finding["node"], match["name"], path, *bytes_)
    return sorted(by_ends.values(), key=lambda pair: sorted((order.index(pair.first), order.index(pair.second))))


def site_paths(outputs: Mapping[str, Any]) -> tuple[list[str], dict[tuple[str, str], dict[str, int]]]:
    """Return the sites, and for each two of them the number of node pairs by path."""
    site_of = {node["name"]: node["site"] for node in outputs["cluster"]["nodes"]}
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for pair in pairs(outputs):
        ends = sorted((site_of[pair.first], site_of[pair.second]))
        for row, column in {(ends[0], ends[-1]), (ends[-1], ends[0])}:
            cell = counts.setdefault((row, column), {})
            cell[pair.path] = cell.get(pair.path, 0) + 1
    return sorted(set(site_of.values())), counts
