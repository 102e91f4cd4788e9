"""Turns a job's report into the result that a stack outputs.

The bus bandwidth judged is the out-of-place one at `gate_bytes`. The average over sizes is reported and never
judged: it mixes sizes that measure latency with sizes that measure bandwidth. A number that was not measured is
None, never 0.
"""

import time
from collections.abc import Sequence
from typing import Literal, TypedDict

from components.validation.expected import NOTHING, Expected, complaint, proven
from components.validation.figures import Figures, doubts, largest_spread, read_figures, wrong_data
from components.validation.model import Backend, JobReport, Measurement
from components.validation.nccl_tests import Row, Timing
from components.validation.preflight.findings import Finding
from components.validation.sizes import format_size
from components.validation.software import read_versions
from components.validation.transport import Transport, read_transport
from components.validation.wording import age, beside, context, ending, findings, odd_run, told_by_environment, without

Verdict = Literal["PASS", "FAIL", "UNJUDGED", "UNSTABLE", "INCONCLUSIVE", "BUSY"]

_UNFINISHED = ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "STAGE_OUT", "")


class HalfResult(TypedDict):
    """One half of a row: microseconds, 1e9 bytes a second, and wrong elements (None if not counted)."""

    time_us: float
    algbw_gb_per_s: float
    busbw_gb_per_s: float
    wrong: int | None


class RowResult(TypedDict):
    """The measurement of one size in bytes."""

    bytes: int
    out_of_place: HalfResult
    in_place: HalfResult


class LastFigure(TypedDict):
    """What was measured before; the figure is None where that was not whole, right and complete. Age in seconds."""

    busbw_gb_per_s: float | None
    nodes: list[str]
    measured_at: str
    age_seconds: int


class Spread(TypedDict):
    """Bus bandwidths of the runs at the gate size, GB/s, and (largest - smallest) / middle of them."""

    runs: list[float]
    relative: float


class SuspectResult(TypedDict):
    """A node, or the two ends of a link, that measured slower than the others."""

    nodes: list[str]
    busbw_gb_per_s: float | None
    reference_gb_per_s: float
    reason: str


class GroupResult(TypedDict):
    """Nodes of a scope with the same GPUs, where there are several such groups; `gpus` such as h200:8."""

    gpus: str
    nodes: list[str]
    verdict: Verdict
    reason: str
    busbw_gb_per_s: float | None
    floor_gb_per_s: float | None


class Result(TypedDict):
    """The measurement of one scope. `wrong` counts elements, or measurements with deviations up to v2.11.

    `left_out` names nodes that did not take part, `last` what BUSY has in the place of a figure of its own. Where
    nodes were measured in groups, the figures are those of the group with the most GPUs. `versions` maps NCCL, CUDA and
    nccl-tests to the version that the job printed, as far as it printed one.
    """

    backend: Backend
    collective: str
    verdict: Verdict
    reason: str
    busbw_gb_per_s: float | None
    algbw_gb_per_s: float | None
    gate_bytes: int
    floor_gb_per_s: float | None
    floor_source: str | None
    spread: Spread | None
    peak_busbw_gb_per_s: float | None
    peak_bytes: int | None
    average_busbw_gb_per_s: float | None
    wrong: int | None
    ranks: int | None
    nodes: list[str]
    gpus: dict[str, str]
    versions: dict[str, str]
    transport: str | None
    interface: str | None
    expected_transport: str | None
    expected_interface: str | None
    job_id: int | None
    seconds: float | None
    rows: list[RowResult]
    groups: list[GroupResult]
    left_out: list[str]
    measured_at: str | None
    last: LastFigure | None
    preflight: dict[str, list[Finding]]
    suspects: list[SuspectResult]


def judge(asked: Measurement, report: JobReport, expected: Expected = NOTHING) -> Result:
    """The result of one measurement; every outcome of the job has one, so nothing is raised.

    expected   what the nodes have that should carry the data
    """
    if report.left_out and report.job_id is not None:
        asked = asked.without(len(report.left_out))
    figures = read_figures(asked, report)
    table, gate, peak = figures.tables[0], figures.gate, figures.peak
    transport = read_transport(report.log + report.output, asked.nodes)
    verdict, reason = _verdict(asked, report, figures, expected, transport)
    relative = figures.relative_spread
    return Result(
        backend=asked.backend,
        collective=asked.collective,
        verdict=verdict,
        reason=reason,
        busbw_gb_per_s=gate.busbw_gb_per_s if gate else None,
        algbw_gb_per_s=gate.algbw_gb_per_s if gate else None,
        gate_bytes=asked.gate_bytes,
        floor_gb_per_s=asked.floor_gb_per_s,
        floor_source=asked.floor_source,
        spread=None if relative is None else Spread(runs=list(figures.runs), relative=relative),
        peak_busbw_gb_per_s=peak.out_of_place.busbw_gb_per_s if peak else None,
        peak_bytes=peak.size_bytes if peak else None,
        average_busbw_gb_per_s=table.average_busbw_gb_per_s,
        wrong=figures.wrong,
        ranks=table.ranks,
        nodes=list(report.nodes),
        gpus={},
        versions=read_versions(report.log + report.output),
        transport=transport.name,
        interface=transport.interface,
        expected_transport=expected.transport,
        expected_interface=expected.interface,
        job_id=report.job_id,
        seconds=report.seconds,
        rows=[_row(row) for row in figures.rows],
        groups=[],
        left_out=list(report.left_out),
        measured_at=moment(report.measured_at),
        last=_last(asked, report),
        preflight={},
        suspects=[],
    )


def moment(seconds: float | None) -> str | None:
    """A moment in seconds since 1970 as outputs have it."""
    return None if seconds is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _last(asked: Measurement, report: JobReport) -> LastFigure | None:
    last = report.last
    at, now = (moment(last.measured_at), report.measured_at) if last else (None, None)
    if last is None or last.measured_at is None or at is None or now is None:
        return None
    figures = read_figures(asked, last)
    ended = (last.state, last.exit_code, last.signal, figures.wrong) == ("COMPLETED", 0, 0, 0)
    gate = figures.gate if ended and not any(table.problems for table in figures.tables) else None
    return LastFigure(
        busbw_gb_per_s=gate.busbw_gb_per_s if gate else None,
        nodes=list(last.nodes),
        measured_at=at,
        age_seconds=max(0, round(now - last.measured_at)),
    )


def _busy(asked: Measurement, report: JobReport) -> str:
    held = "; ".join(f"{name}: {text}" for name, text in report.facts.items())
    busy = f"Other jobs are on {', '.join(report.left_out) or 'its nodes'}{f' ({held})' if held else ''}."
    last = _last(asked, report)
    if last is None:
        return f"{busy} Nothing was measured before. The next up tries again."
    figure = last["busbw_gb_per_s"]
    words = "no figure" if figure is None else f"{figure:.3f} GB/s at {format_size(asked.gate_bytes)}"
    return (
        f"{busy} The last measurement, {age(last['age_seconds'])} ago on {', '.join(last['nodes']) or 'no nodes'}, "
        f"gave {words}. The next up tries again."
    )


def not_completed(backend: str, report: JobReport) -> tuple[Verdict, str] | None:
    """What is to be said of a job that did not come to a good end, or was never submitted; None where it did."""
    if report.state == "UNAVAILABLE":
        out = [f"{name} ({report.absent[name]})" if name in report.absent else name for name in report.left_out]
        seen = "" if report.absent else findings(report)
        return "INCONCLUSIVE", f"No job was submitted: {', '.join(out)} cannot run one.{seen}"
    if report.state in _UNFINISHED:
        state = report.state or "in no known state"
        return "INCONCLUSIVE", f"The job was still {state} when the wait ended.{context(report)}"
    if report.state != "COMPLETED" or report.exit_code or report.signal:
        return "FAIL", f"The job did not complete: {ending(backend, report)}.{context(report)}"
    return None


def _verdict(
    asked: Measurement, report: JobReport, figures: Figures, expected: Expected, transport: Transport
) -> tuple[Verdict, str]:
    if figures.wrong:
        return "FAIL", f"The data was wrong: {figures.wrong} out of bounds ({wrong_data(figures)}).{findings(report)}"
    if report.state == "BUSY":
        return "BUSY", _busy(asked, report)
    if ended := not_completed(asked.backend, report):
        return ended
    found = doubts(asked, report, figures)
    if not proven(expected, transport):
        found.append(f"NCCL's log does not prove what carried the data, where {expected.transport} should have")
    gate = figures.gate
    if found or gate is None:
        return "INCONCLUSIVE", f"Not a whole measurement: {'; '.join(found)}.{context(report)}"
    measured = f"{gate.busbw_gb_per_s:.3f} GB/s of bus bandwidth at {format_size(asked.gate_bytes)}"
    measured += without(report)
    floor, wrong_way = asked.floor_gb_per_s, complaint(expected, transport)
    below = floor is not None and gate.busbw_gb_per_s < floor
    if below or wrong_way:
        held = f", below the floor of {floor:g} GB/s" if below else ""
        told = told_by_environment(report.log + report.output)
        also = f"{f' {wrong_way}' if wrong_way else ''}{told}{beside(report)}{findings(report)}"
        return "FAIL", f"Measured {measured}{held}.{also}"
    unsteady = _unsteady(report, figures, transport)
    if unsteady:
        return "UNSTABLE", f"Measured {measured}, but {unsteady}{findings(report)}"
    if report.first_runs:
        measured += f" the second time, as the runs of the first gave {_listed(report.first_runs)}"
    if floor is None:
        return "UNJUDGED", f"Measured {measured}; no floor is known for this hardware."
    return "PASS", f"Measured {measured}, at or above the floor of {floor:g} GB/s."


def _listed(runs: Sequence[float]) -> str:
    return f"{', '.join(f'{each:.3f}' for each in runs)} GB/s"


def _unsteady(report: JobReport, figures: Figures, transport: Transport) -> str:
    """What is to be said of runs that lie too far apart; empty where they do not."""
    relative, gate, limit = figures.relative_spread, figures.gate, largest_spread(transport.name)
    if relative is None or gate is None or relative <= limit:
        return ""
    runs, middle = figures.runs, gate.busbw_gb_per_s
    odd, name = odd_run(runs, middle)
    words = f"its runs gave {_listed(runs)} and differ by {relative:.0%}, more than {limit:.0%}"
    words += f"; {name}."
    if report.first_runs:
        words += f" It was measured twice; the first time they gave {_listed(report.first_runs)}."
    return words + beside(report, odd)


def _row(row: Row) -> RowResult:
    return RowResult(bytes=row.size_bytes, out_of_place=_half(row.out_of_place), in_place=_half(row.in_place))


def _half(timing: Timing) -> HalfResult:
    return HalfResult(
        time_us=timing.time_us,
        algbw_gb_per_s=timing.algbw_gb_per_s,
        busbw_gb_per_s=timing.busbw_gb_per_s,
        wrong=timing.wrong,
    )
