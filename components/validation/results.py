"""Turn a measuring step's report into the results of its scope and of its single nodes, and those into text.

A figure is compared with the minimum bus bandwidth of healthy hardware, from floors.csv. A row is one figure of one
source: a published floor (fraction 1), or a measurement, of which `fraction` counts because healthy machines differ. It
is valid only for its GPU kind, GPUs per node, number of nodes, transport and collective. Sockets have no rows, because
their bandwidth depends on the network; `make floors` records it.

Between two sizes of one source the floor is interpolated over the logarithm of the size: with each inner row left out
in turn, this is 7 % below to 2 % above the measured values; over bytes it is up to 21 % below. There is no floor
outside a source's sizes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pkgutil import get_data
from typing import Annotated, Any

from components.validation.fabric_facts import FabricFacts, read_fabric_facts
from components.validation.groups import Group, single_node_groups
from components.validation.model import NO_REPORT, JobReport, Measurement, format_size, parse_size, table
from components.validation.preflight.findings import Finding
from components.validation.slow_nodes import Suspect, plain
from components.validation.transport import ANY_RDMA, GPUDIRECT, NVLINK, Expected, expect, read_transport
from components.validation.untrusted import Name, read, value_of
from components.validation.verdict import Result, Verdict, judge

_WORST_FIRST: tuple[Verdict, ...] = ("FAIL", "UNSTABLE", "INCONCLUSIVE", "BUSY", "UNJUDGED", "PASS")
_UNJUDGED = _WORST_FIRST.index("UNJUDGED")
# The keys of a further collective's result; the others are those of the first one.
_OF_COLLECTIVE = (
    *("collective", "verdict", "reason", "busbw_gb_per_s", "algbw_gb_per_s", "gate_bytes", "floor_gb_per_s"),
    *("floor_source", "spread", "wrong", "transport", "interface", "expected_transport", "rows"),
)
_ASKED = frozenset(field.name for field in fields(Measurement))
# GPUs by node, such as `h200:8`. They are shown unquoted.
_GPUS = dict[Name, Annotated[str, r"[A-Za-z0-9:, ._-]{1,200}"]]
ReadPreflight = Callable[[str], Mapping[str, Sequence[Finding]]]
COLUMNS = ("size", "time (us)", "algbw (GB/s)", "busbw (GB/s)", "in-place busbw (GB/s)", "wrong")


@dataclass(frozen=True)
class Conditions:
    """The conditions for a scope's verdict.

    floor, node_floor   floors in the config for the scope and for single nodes; GB/s
    floors_from         source of these floors
    interface           interface that sockets should use
    spans               whether its nodes are in several sites
    rdma                RDMA that jobs may use (transport.py)
    mpi                 nodes by release of Open MPI and PMIx, if releases differ
    """

    floor: float | None
    node_floor: float | None
    interface: str
    spans: bool
    floors_from: str = "config"
    rdma: str = ANY_RDMA
    mpi: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def expect(self, nodes: tuple[str, ...], facts: Mapping[str, FabricFacts]) -> Expected:
        """Return the transport that should carry the data between the nodes' GPUs."""
        return expect(nodes, facts, self.interface, spans=self.spans, rdma=self.rdma)


def settings_json(settings: Measurement) -> dict[str, Any]:
    """Return the settings to store with the report, without floors: those are applied later."""
    return {key: value for key, value in asdict(settings).items() if not key.startswith("floor")}


def settings_in(entry: Mapping[str, Any]) -> Measurement | None:
    """Return the settings in a report; None if they are missing or invalid."""
    settings = entry.get("asked")
    if not isinstance(settings, Mapping) or not set(settings) <= _ASKED:
        return None
    try:
        return Measurement(**settings)
    except (TypeError, ValueError):
        return None


def judge_group(
    entry: Mapping[str, Any], facts: Mapping[str, FabricFacts], floor: float | None, conditions: Conditions
) -> Result:
    """Return the result of one group of nodes measured on its GPUs. Raises ValueError for a malformed entry."""
    # The settings of a group do not include the nodes that the scope leaves out.
    settings = settings_in(entry)
    absent = entry.get("absent", {}) if entry.get("state") == "UNAVAILABLE" else {}
    report = JobReport.from_json({**entry, "left_out": [], "absent": absent})
    if settings is None:
        raise ValueError("the job report has no settings")
    gpus = value_of(_GPUS, entry["gpus"])
    group = Group(", ".join(sorted(set(gpus.values()))), tuple(sorted(gpus)), settings.ranks // settings.nodes)
    expected = conditions.expect(group.nodes, facts)
    used = read_transport(report.log + report.output, settings.nodes).name or ""
    # A machine that has lost an NVLink keeps its kind's floor.
    meshed = len(group.nodes) == 1 and all(node in facts and facts[node].meshed for node in group.nodes)
    known_floor = floor_for(
        gpu=group.kind,
        gpus_per_node=group.per_node,
        nodes=settings.nodes,
        transport=expected.transport or (NVLINK if meshed else used),
        collective=settings.collective,
        size_bytes=settings.gate_bytes,
        nvlinks=min((facts[node].nvlinks for node in group.nodes if node in facts), default=0),
    )
    if floor is not None:
        settings = replace(settings, floor_gb_per_s=floor, floor_source=conditions.floors_from)
    elif known_floor is not None:
        settings = replace(settings, floor_gb_per_s=known_floor.gb_per_s, floor_source=known_floor.source)
    result = judge(settings, report, expected)
    result["gpus"] = gpus
    return result


def _judge_all(
    entry: Mapping[str, Any], facts: Mapping[str, FabricFacts], floor: float | None, conditions: Conditions
) -> Result:
    """Return the result of one group with those of further collectives. The config's floor is not theirs."""
    result = judge_group(entry, facts, floor, conditions)
    for name, part in entry.get("more", {}).items():
        asked = {**entry["asked"], "collective": name}
        other = judge_group({**entry, "repeats": (), **part, "asked": asked}, facts, None, conditions)
        result["collectives"][name] = {key: other[key] for key in _OF_COLLECTIVE}
        if _WORST_FIRST.index(other["verdict"]) < min(_WORST_FIRST.index(result["verdict"]), _UNJUDGED):
            result["verdict"] = other["verdict"]
            result["reason"] = f"{result['reason']} {name}: {other['reason']}"
    return result


def judge_scope(
    settings: Measurement, step_report: Mapping[str, Any], conditions: Conditions, preflight: ReadPreflight
) -> tuple[Result, dict[str, Result]]:
    """Return the result of a scope and of each node that was measured alone; nothing is raised.

    settings      used if the report has none
    step_report   untrusted output of a user
    preflight     reads the preflight's findings from a job's output
    """
    try:
        return _judge_scope(settings, step_report, conditions, preflight)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        result = judge(settings, NO_REPORT)
        result["reason"] = "The report cannot be read. Change tailrack:validation.rerun to measure again."
        return result, {}


def _judge_scope(
    settings: Measurement, step_report: Mapping[str, Any], conditions: Conditions, preflight: ReadPreflight
) -> tuple[Result, dict[str, Result]]:
    facts = read_fabric_facts(str(step_report.get("there", "")))
    measured_at = {"measured_at": step_report.get("measured_at")}
    by_node = {
        node: _judge_all({**entry, **measured_at}, facts, conditions.node_floor, conditions)
        for entry in step_report.get("alone", ())
        for node in entry["gpus"]
    }
    if step_report.get("gpus") and settings_in(step_report):
        groups = [
            _judge_all(entry, facts, conditions.floor, conditions)
            for entry in (step_report, *step_report.get("others", ()))
        ]
        result = together(groups)
        scope = JobReport.from_json(step_report)
        left_out, absent = scope.left_out, scope.absent
        result["left_out"] = [*left_out, *(name for name in absent if name not in left_out)]
        if result["left_out"]:
            reasons = [f"{name} ({absent.get(name, 'other jobs are on it')})" for name in result["left_out"]]
            result["reason"] += f" Left out: {', '.join(reasons)}."
    else:
        if conditions.floor is not None:
            settings = replace(settings, floor_gb_per_s=conditions.floor, floor_source=conditions.floors_from)
        # The last measurement may have had other settings, from the hardware found then.
        last_settings = settings_in(step_report.get("last") or {})
        if last_settings is not None and step_report.get("state") == "BUSY":
            settings = replace(
                last_settings, floor_gb_per_s=settings.floor_gb_per_s, floor_source=settings.floor_source
            )
        result = judge(settings, JobReport.from_json(step_report))
    result["preflight"] = {
        node: list(items) for node, items in preflight(str(step_report.get("preflight", ""))).items()
    }
    result["suspects"] = [plain(read(Suspect, suspect)) for suspect in step_report.get("suspects", ())]
    reasons = [result["reason"], *(suspect["reason"] for suspect in result["suspects"])]
    result["reason"] = " ".join([*reasons, *_apart(conditions.mpi, on_gpus=settings.backend == "nccl-tests")])
    return result, by_node


def _apart(mpi: Mapping[str, tuple[str, ...]], *, on_gpus: bool) -> list[str]:
    if not mpi:
        return []
    releases = "; ".join(
        f"{version.replace('-pmix', ' with PMIx ')} on {', '.join(nodes)}" for version, nodes in mpi.items()
    )
    effect = "only nodes with the same release were measured together" if on_gpus else "they were measured without MPI"
    return [f"The nodes have incompatible releases of Open MPI ({releases}): {effect}."]


def together(groups: Sequence[Result]) -> Result:
    """Return one result for several groups: the first group's figures, the worst verdict, and all reasons."""
    first = groups[0]
    if len(groups) == 1:
        return first
    result = Result(**first)
    result["verdict"] = min((group["verdict"] for group in groups), key=_WORST_FIRST.index)
    result["gpus"] = {node: kind for group in groups for node, kind in group["gpus"].items()}
    result["groups"] = [
        {"gpus": ", ".join(sorted(set(group["gpus"].values())))}
        | {name: group[name] for name in ("nodes", "verdict", "reason", "busbw_gb_per_s", "floor_gb_per_s")}
        for group in groups
    ]
    result["reason"] = " ".join(
        f"{entry['gpus']} on {', '.join(entry['nodes']) or 'no nodes'}: {entry['reason']}" for entry in result["groups"]
    )
    return result


def not_measured_alone(
    gpus: Mapping[str, str], most: int, result: Result, before: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the results of a site's nodes with several GPUs, for those that this run did not measure alone.

    That is a node's last result, with the same GPUs; without one, the site's result if nothing was measured there.

    gpus     GPUs by node
    most     see site_groups
    before   the last results by node
    """
    results: dict[str, dict[str, Any]] = {}
    for group in single_node_groups(gpus, sorted(gpus), most):
        (name,) = group.nodes
        last = before.get(name) or {}
        if last.get("gpus") == {name: gpus[name]}:
            results[name] = dict(last)
        elif result["job_id"] is None:
            results[name] = {**result, "gpus": {name: gpus[name]}, "floor_gb_per_s": None, "floor_source": None}
    return results


def needs_search(result: Result) -> bool:
    return result["verdict"] in ("FAIL", "UNSTABLE")


def scopes_of(validation: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return every result of the output `validation` with its name: single nodes as `node a1`, then sites, then
    cross-site.
    """
    results = {f"node {name}": result for name, result in validation.get("node", {}).items()}
    sites = {name: result for name, result in validation.items() if name not in ("node", "cross-site")}
    cross_site = {name: result for name, result in validation.items() if name == "cross-site"}
    return [*sorted(results.items()), *sorted(sites.items()), *cross_site.items()]


def table_rows(result: Result) -> list[tuple[str, ...]]:
    """Return one row of texts per size, in the order of `COLUMNS`; out of place unless the column names in-place."""
    return [
        (
            format_size(row["bytes"]),
            f"{row['out_of_place']['time_us']:,.2f}",
            bandwidth(row["out_of_place"]["algbw_gb_per_s"]),
            bandwidth(row["out_of_place"]["busbw_gb_per_s"]),
            bandwidth(row["in_place"]["busbw_gb_per_s"]),
            _wrong(row["out_of_place"], row["in_place"]),
        )
        for row in result["rows"]
    ]


def bandwidth(gb_per_s: float) -> str:
    """Return GB/s as text: two decimals for fast links, five for slow links between sites."""
    return f"{gb_per_s:.2f}" if gb_per_s >= 1 else f"{gb_per_s:.5f}"


def _wrong(*halves: Mapping[str, Any]) -> str:
    counts = [half["wrong"] for half in halves]
    return "not counted" if None in counts else str(sum(count for count in counts if count is not None))


_Hardware = tuple[str, int, int, str, str]


@dataclass(frozen=True)
class Floor:
    """The minimum out-of-place bus bandwidth in 1e9 bytes per second, and its source in words."""

    gb_per_s: float
    source: str


def floor_for(
    *, gpu: str, gpus_per_node: int, nodes: int, transport: str, collective: str, size_bytes: int, nvlinks: int = 0
) -> Floor | None:
    """Return the floor of these GPUs at one size; None if no source has one.

    gpu         the kind, such as h200
    transport   such as NVLink, InfiniBand or Libfabric, with or without ` + GPUDirect RDMA`
    nvlinks     NVLinks between two GPUs, which distinguish boards of one kind (H100 SXM has 18, NVL 12); 0 if unknown

    The lowest floor of several sources counts, because every healthy machine must reach it.
    """
    path = transport.removesuffix(GPUDIRECT)  # a way to use a network, not a network
    candidates = (
        Floor(gb_per_s, source)
        for name in (path, f"{path}{nvlinks}" if path == NVLINK and nvlinks else path)
        for source, figures in _floors().get((gpu, gpus_per_node, nodes, name, collective), {}).items()
        if (gb_per_s := _between(figures, size_bytes)) is not None
    )
    return min(candidates, key=lambda floor: floor.gb_per_s, default=None)


@cache
def _floors() -> dict[_Hardware, dict[str, dict[int, float]]]:
    """Return the floors by hardware, source and size in bytes."""
    floors: dict[_Hardware, dict[str, dict[int, float]]] = {}
    for row in table(get_data("components.validation", "floors.csv")):
        hardware = row["gpu"], int(row["gpus_per_node"]), int(row["nodes"]), row["transport"], row["collective"]
        figures = floors.setdefault(hardware, {}).setdefault(row["source"], {})
        figures[parse_size(row["size"])] = float(row["gb_per_s"]) * float(row["fraction"])
    return floors


def _between(figures: dict[int, float], size_bytes: int) -> float | None:
    below = max((size for size in figures if size <= size_bytes), default=None)
    above = min((size for size in figures if size >= size_bytes), default=None)
    if below is None or above is None:
        return None
    share = math.log(size_bytes / below) / math.log(above / below) if above > below else 0.0
    return figures[below] + share * (figures[above] - figures[below])


MOST, MOST_OF_NODE = 100, 12  # a thousand nodes have one each, all stored in the state
# One measurement: its time, bus bandwidth and floor (GB/s or None), the judged message size, and the number of nodes.
Entry = dict[str, Any]
_KEYS = ("measured_at", "busbw_gb_per_s", "floor_gb_per_s", "verdict", "gate_bytes")


@dataclass(frozen=True)
class _Entry:
    measured_at: Annotated[str, r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"]
    verdict: str
    busbw_gb_per_s: float | None
    floor_gb_per_s: float | None
    nodes: float  # the outputs of the last run have only floats
    gate_bytes: float | None = None


def _is_entry(item: object) -> bool:
    try:
        return bool(read(_Entry, item))
    except ValueError:
        return False


def extended(history: object, result: Mapping[str, Any], most: int = MOST) -> list[Entry]:
    """Return a scope's history with its result added.

    history   history of the last run, or anything without one. A result that was judged again replaces its entry; BUSY
              is not added
    """
    entries = [entry for entry in history if _is_entry(entry)] if isinstance(history, list) else []
    if result.get("measured_at") and result["verdict"] != "BUSY":
        new = {**{key: result[key] for key in _KEYS if key in result}, "nodes": len(result["nodes"])}
        entries = [entry for entry in entries if entry.get("measured_at") != new["measured_at"]] + [new]
    return entries[-most:]
