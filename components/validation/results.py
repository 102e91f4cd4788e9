"""From what a measuring step has brought back to the results of its scope, and of its nodes one by one."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from components.validation import floors
from components.validation.expected import ANY_RDMA, NVLINK, expect
from components.validation.fabric_facts import FabricFacts, read_fabric_facts
from components.validation.groups import Group
from components.validation.model import JobReport, Measurement, names, number
from components.validation.preflight.findings import Finding
from components.validation.transport import read_transport
from components.validation.verdict import GroupResult, Result, SuspectResult, Verdict, judge

_WORST_FIRST: tuple[Verdict, ...] = ("FAIL", "UNSTABLE", "INCONCLUSIVE", "BUSY", "UNJUDGED", "PASS")
_ASKED = frozenset(field.name for field in fields(Measurement))

ReadPreflight = Callable[[str], Mapping[str, Sequence[Finding]]]


@dataclass(frozen=True)
class Conditions:
    """What a scope's figures are held against.

    floor, node_floor   the config's own for the scope, and for nodes by themselves; GB/s
    floors_from         where these come from
    interface           the one that sockets should use
    spans               whether its nodes stand in several sites
    rdma                what jobs may use of it (expected.py)
    mpi                 nodes by their releases of Open MPI and PMIx, where these kept some from being measured together
    """

    floor: float | None
    node_floor: float | None
    interface: str
    spans: bool
    floors_from: str = "config"
    rdma: str = ANY_RDMA
    mpi: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def asked_json(asked: Measurement) -> dict[str, Any]:
    """What was asked, to be kept with the report: floors are held against it later."""
    return {key: value for key, value in asdict(asked).items() if not key.startswith("floor")}


def asked_in(entry: Mapping[str, Any]) -> Measurement | None:
    """What a report says that was asked; None where it says nothing, or nothing that could have been."""
    told = entry.get("asked")
    if not isinstance(told, Mapping) or not set(told) <= _ASKED:
        return None
    try:
        return Measurement(**told)
    except (TypeError, ValueError):
        return None


def judge_group(
    entry: Mapping[str, Any], there: Mapping[str, FabricFacts], floor: float | None, how: Conditions
) -> Result:
    """The result of one group of nodes that was measured on its GPUs. ValueError where the entry is none."""
    # Who of the scope is left out is not the group's business: what was asked of it is without them.
    asked, report = asked_in(entry), JobReport.from_json({**entry, "left_out": [], "absent": {}})
    if asked is None:
        raise ValueError("the job report does not say what was asked")
    gpus = dict(zip(names("gpus", [*entry["gpus"]]), map(_kinds, entry["gpus"].values()), strict=True))
    group = Group(", ".join(sorted(set(gpus.values()))), tuple(sorted(gpus)), asked.ranks // asked.nodes)
    expected = expect(group.nodes, there, how.interface, spans=how.spans, rdma=how.rdma)
    used = read_transport(report.log + report.output, asked.nodes).name or ""
    # A machine that has lost a link is still one of its kind.
    meshed = len(group.nodes) == 1 and all(node in there and there[node].meshed for node in group.nodes)
    known = floors.floor_for(
        gpu=group.kind,
        gpus_per_node=group.per_node,
        nodes=asked.nodes,
        transport=expected.transport or (NVLINK if meshed else used),
        collective=asked.collective,
        size_bytes=asked.gate_bytes,
    )
    if floor is not None:
        asked = replace(asked, floor_gb_per_s=floor, floor_source=how.floors_from)
    elif known is not None:
        asked = replace(asked, floor_gb_per_s=known.gb_per_s, floor_source=known.source)
    result = judge(asked, report, expected)
    result["gpus"] = gpus
    return result


def judge_scope(
    asked: Measurement, found: Mapping[str, Any], how: Conditions, preflight: ReadPreflight
) -> tuple[Result, dict[str, Result]]:
    """The result of a scope, and of each of its nodes that was measured by itself; nothing is raised.

    asked       of the whole scope, where the report does not say itself what was asked of it
    found       what the step has brought back: words of a user, which may be anything
    preflight   reads the preflight's findings out of a job's output
    """
    try:
        return _judge_scope(asked, found, how, preflight)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        nothing = JobReport(job_id=None, state="", exit_code=None, signal=None, seconds=None, nodes=(), output="")
        result = judge(asked, nothing)
        result["reason"] = "The report cannot be read. Change tailrack:validation.rerun to measure again."
        return result, {}


def _judge_scope(
    asked: Measurement, found: Mapping[str, Any], how: Conditions, preflight: ReadPreflight
) -> tuple[Result, dict[str, Result]]:
    there = read_fabric_facts(str(found.get("there", "")))
    at = {"measured_at": found.get("measured_at")}
    by_node = {
        node: judge_group({**entry, **at}, there, how.node_floor, how)
        for entry in found.get("alone", ())
        for node in entry["gpus"]
    }
    if found.get("gpus") and asked_in(found):
        groups = [judge_group(entry, there, how.floor, how) for entry in (found, *found.get("others", ()))]
        result = together(groups)
        scope = JobReport.from_json(found)
        left_out, absent = scope.left_out, scope.absent
        result["left_out"] = [*left_out, *(name for name in absent if name not in left_out)]
        if result["left_out"]:
            words = [f"{name} ({absent.get(name, 'other jobs are on it')})" for name in result["left_out"]]
            result["reason"] += f" Left out: {', '.join(words)}."
    else:
        if how.floor is not None:
            asked = replace(asked, floor_gb_per_s=how.floor, floor_source=how.floors_from)
        # What was measured last may have been asked otherwise, by what was found on the nodes then.
        before = asked_in(found.get("last") or {})
        if before is not None and found.get("state") == "BUSY":
            asked = replace(before, floor_gb_per_s=asked.floor_gb_per_s, floor_source=asked.floor_source)
        result = judge(asked, JobReport.from_json(found))
    result["preflight"] = {node: list(each) for node, each in preflight(str(found.get("preflight", ""))).items()}
    result["suspects"] = [_suspect(suspect) for suspect in found.get("suspects", ())]
    reasons = [result["reason"], *(suspect["reason"] for suspect in result["suspects"])]
    result["reason"] = " ".join([*reasons, *_apart(how.mpi, on_gpus=asked.backend == "nccl-tests")])
    return result, by_node


def _apart(mpi: Mapping[str, tuple[str, ...]], *, on_gpus: bool) -> list[str]:
    """Why nodes were measured otherwise than they would have been with one Open MPI and PMIx."""
    if not mpi:
        return []
    who = "; ".join(
        f"{version.replace('-pmix', ' with PMIx ')} on {', '.join(nodes)}" for version, nodes in mpi.items()
    )
    how = "nodes of each were measured by themselves" if on_gpus else "they were measured without MPI"
    return [f"Releases of Open MPI differ and do not speak with each other ({who}): {how}."]


def _kinds(told: object) -> str:
    """A node's GPUs as the plan has them, `h200:8`; they are shown as they are."""
    if not isinstance(told, str) or not re.fullmatch(r"[A-Za-z0-9:, ._-]{1,200}", told):
        raise ValueError("gpus are not kinds and counts")
    return told


def _suspect(told: Mapping[str, Any]) -> SuspectResult:
    found = told["busbw_gb_per_s"]
    return SuspectResult(
        nodes=list(names("nodes", told["nodes"])),
        busbw_gb_per_s=None if found is None else number("busbw_gb_per_s", found),
        reference_gb_per_s=number("reference_gb_per_s", told["reference_gb_per_s"]),
        reason=str(told["reason"]),
    )


def together(groups: Sequence[Result]) -> Result:
    """One result of several groups: the figures of the first, the worst verdict, and what there is to say of each."""
    first = groups[0]
    if len(groups) == 1:
        return first
    result = Result(**first)
    result["verdict"] = min((group["verdict"] for group in groups), key=_WORST_FIRST.index)
    result["gpus"] = {node: kind for group in groups for node, kind in group["gpus"].items()}
    result["groups"] = [
        GroupResult(
            gpus=", ".join(sorted(set(group["gpus"].values()))),
            nodes=group["nodes"],
            verdict=group["verdict"],
            reason=group["reason"],
            busbw_gb_per_s=group["busbw_gb_per_s"],
            floor_gb_per_s=group["floor_gb_per_s"],
        )
        for group in groups
    ]
    result["reason"] = " ".join(
        f"{each['gpus']} on {', '.join(each['nodes']) or 'no nodes'}: {each['reason']}" for each in result["groups"]
    )
    return result


def to_be_searched(result: Result) -> bool:
    """Whether slow nodes should be looked for: it failed, or its runs differ much."""
    return result["verdict"] in ("FAIL", "UNSTABLE")
