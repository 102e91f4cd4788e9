"""Turn a job's report into the result that a stack outputs.

The verdict depends on the out-of-place bus bandwidth at `gate_bytes`. The average over sizes is not judged, because it
mixes latency and bandwidth. A value that was not measured is None, never 0.
"""

import time
from collections.abc import Sequence
from typing import Any, Literal, TypedDict

from components.validation.collectives import format_size
from components.validation.expected import NOTHING, Expected, complaint, proven
from components.validation.figures import Figures, doubts, largest_spread, read_figures, wrong_data
from components.validation.model import Backend, JobReport, Measurement
from components.validation.nccl_output import read_versions
from components.validation.nccl_tests import Row, Timing
from components.validation.preflight.findings import Finding
from components.validation.transport import Transport, read_transport
from components.validation.wording import (
    age,
    beside,
    circumstances,
    context,
    ending,
    findings,
    odd_run,
    percents,
    without,
)

Verdict = Literal["PASS", "FAIL", "UNJUDGED", "UNSTABLE", "INCONCLUSIVE", "BUSY"]

_UNFINISHED = ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "STAGE_OUT", "")


class HalfResult(TypedDict):
    """One half of a row: microseconds, 1e9 bytes per second, and wrong elements (None if not counted)."""

    time_us: float
    algbw_gb_per_s: float
    busbw_gb_per_s: float
    wrong: int | None


class RowResult(TypedDict):
    bytes: int
    out_of_place: HalfResult
    in_place: HalfResult


class LastFigure(TypedDict):
    """The last measurement. The bandwidth is None if that measurement was incomplete or wrong."""

    busbw_gb_per_s: float | None
    nodes: list[str]
    measured_at: str
    age_seconds: int


class Spread(TypedDict):
    """Bus bandwidths of the runs at the gate size in GB/s, and (largest - smallest) / median."""

    runs: list[float]
    relative: float


class GroupResult(TypedDict):
    """Nodes of a scope with the same GPUs (such as h200:8), if the scope has several such groups."""

    gpus: str
    nodes: list[str]
    verdict: Verdict
    reason: str
    busbw_gb_per_s: float | None
    floor_gb_per_s: float | None


class Result(TypedDict):
    """The measurement of one scope. `wrong` counts elements, or measurements with deviations up to v2.11.

    left_out   nodes that did not take part
    last       the earlier measurement that BUSY reports
    groups     if not empty, all other figures are those of the group with the most GPUs
    versions   versions of NCCL, CUDA and nccl-tests, as far as the job printed them
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
    suspects: list[dict[str, Any]]


def judge(settings: Measurement, report: JobReport, expected: Expected = NOTHING) -> Result:
    """Return the result of one measurement, whatever its outcome; nothing is raised."""
    if report.left_out and report.job_id is not None:
        settings = settings.without(len(report.left_out))
    figures = read_figures(settings, report)
    table, gate, peak = figures.tables[0], figures.gate, figures.peak
    transport = read_transport(report.log + report.output, settings.nodes)
    verdict, reason = _verdict(settings, report, figures, expected, transport)
    relative = figures.relative_spread
    return Result(
        backend=settings.backend,
        collective=settings.collective,
        verdict=verdict,
        reason=reason,
        busbw_gb_per_s=gate.busbw_gb_per_s if gate else None,
        algbw_gb_per_s=gate.algbw_gb_per_s if gate else None,
        gate_bytes=settings.gate_bytes,
        floor_gb_per_s=settings.floor_gb_per_s,
        floor_source=settings.floor_source,
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
        last=_last(settings, report),
        preflight={},
        suspects=[],
    )


def moment(seconds: float | None) -> str | None:
    """Return a Unix time in the format of outputs."""
    return None if seconds is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _last(settings: Measurement, report: JobReport) -> LastFigure | None:
    last = report.last
    measured_at, reported_at = (moment(last.measured_at), report.measured_at) if last else (None, None)
    if last is None or last.measured_at is None or measured_at is None or reported_at is None:
        return None
    figures = read_figures(settings, last)
    complete = (last.state, last.exit_code, last.signal, figures.wrong) == ("COMPLETED", 0, 0, 0)
    gate = figures.gate if complete and not any(table.problems for table in figures.tables) else None
    return LastFigure(
        busbw_gb_per_s=gate.busbw_gb_per_s if gate else None,
        nodes=list(last.nodes),
        measured_at=measured_at,
        age_seconds=max(0, round(reported_at - last.measured_at)),
    )


def _busy(settings: Measurement, report: JobReport) -> str:
    facts = "; ".join(f"{name}: {text}" for name, text in report.facts.items())
    busy = f"Other jobs are on {', '.join(report.left_out) or 'its nodes'}{f' ({facts})' if facts else ''}."
    last = _last(settings, report)
    if last is None:
        return f"{busy} Nothing was measured before. The next up tries again."
    figure = last["busbw_gb_per_s"]
    result = "no figure" if figure is None else f"{figure:.3f} GB/s at {format_size(settings.gate_bytes)}"
    return (
        f"{busy} The last measurement, {age(last['age_seconds'])} ago on {', '.join(last['nodes']) or 'no nodes'}, "
        f"gave {result}. The next up tries again."
    )


def not_completed(backend: str, report: JobReport) -> tuple[Verdict, str] | None:
    """Return verdict and reason of a job that did not succeed or was never submitted; None if it succeeded."""
    if report.state == "UNAVAILABLE":
        names = dict.fromkeys([*report.left_out, *report.absent])
        nodes = [f"{name} ({report.absent[name]})" if name in report.absent else name for name in names]
        observations = "" if report.absent else findings(report)
        return "INCONCLUSIVE", f"Nothing was measured: {', '.join(nodes)} cannot run a job.{observations}"
    if report.state in _UNFINISHED:
        state = report.state or "in an unknown state"
        return "INCONCLUSIVE", f"The job was still {state} when the wait ended.{context(report)}"
    if report.state != "COMPLETED" or report.exit_code or report.signal:
        return "FAIL", f"The job did not complete: {ending(backend, report)}.{context(report)}"
    return None


def _verdict(
    settings: Measurement, report: JobReport, figures: Figures, expected: Expected, transport: Transport
) -> tuple[Verdict, str]:
    observations = f"{circumstances(report)}{beside(report)}{findings(report)}"
    if figures.wrong:
        return "FAIL", f"The data was wrong: {figures.wrong} out of bounds ({wrong_data(figures)}).{observations}"
    if report.state == "BUSY":
        return "BUSY", _busy(settings, report)
    if ended := not_completed(settings.backend, report):
        return ended
    problems = doubts(settings, report, figures)
    if not proven(expected, transport):
        problems.append(f"NCCL's log does not show which transport carried the data; expected {expected.transport}")
    gate = figures.gate
    if problems or gate is None:
        return "INCONCLUSIVE", f"The measurement is incomplete: {'; '.join(problems)}.{context(report)}"
    measured = f"{gate.busbw_gb_per_s:.3f} GB/s of bus bandwidth at {format_size(settings.gate_bytes)}"
    measured += without(report)
    floor, transport_problem = settings.floor_gb_per_s, complaint(expected, transport)
    below = floor is not None and gate.busbw_gb_per_s < floor
    if below or transport_problem:
        floor_text = f", below the floor of {floor:g} GB/s" if below else ""
        problem = f" {transport_problem}" if transport_problem else ""
        return "FAIL", f"Measured {measured}{floor_text}.{problem}{observations}"
    unsteady = _unsteady(report, figures, transport)
    if unsteady:
        return "UNSTABLE", f"Measured {measured}, but {unsteady}{circumstances(report)}{findings(report)}"
    if report.first_runs:
        measured += f" in a second measurement (the runs of the first gave {_listed(report.first_runs)})"
    if floor is None:
        details = f"{circumstances(report)}{beside(report)}"
        return "UNJUDGED", f"Measured {measured}; no floor is known for this hardware.{details}"
    return "PASS", f"Measured {measured}, at or above the floor of {floor:g} GB/s."


def _listed(runs: Sequence[float]) -> str:
    return f"{', '.join(f'{run:.3f}' for run in runs)} GB/s"


def _unsteady(report: JobReport, figures: Figures, transport: Transport) -> str:
    relative, gate, limit = figures.relative_spread, figures.gate, largest_spread(transport.name)
    if relative is None or gate is None or relative <= limit:
        return ""
    runs, middle = figures.runs, gate.busbw_gb_per_s
    odd, name = odd_run(runs, middle)
    differ, most = percents(relative, limit)
    text = f"its runs gave {_listed(runs)} and differ by {differ}, more than {most}"
    text += f"; {name}."
    if report.first_runs:
        text += f" It was measured twice; the first runs gave {_listed(report.first_runs)}."
    return text + beside(report, odd)


def _row(row: Row) -> RowResult:
    return RowResult(bytes=row.size_bytes, out_of_place=_half(row.out_of_place), in_place=_half(row.in_place))


def _half(timing: Timing) -> HalfResult:
    return HalfResult(
        time_us=timing.time_us,
        algbw_gb_per_s=timing.algbw_gb_per_s,
        busbw_gb_per_s=timing.busbw_gb_per_s,
        wrong=timing.wrong,
    )
