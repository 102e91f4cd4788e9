"""Turns a job's report into the result that a stack outputs.

The bus bandwidth judged is the out-of-place one at `gate_bytes`. The average over sizes is reported and never
judged: it mixes sizes that measure latency with sizes that measure bandwidth. A number that was not measured is
None, never 0.
"""

from datetime import UTC, datetime
from typing import Literal, TypedDict

from components.validation.model import Backend, JobReport, Measurement
from components.validation.nccl_tests import Row, Table, Timing, parse
from components.validation.sizes import format_size
from components.validation.transport import read_transport

Verdict = Literal["PASS", "FAIL", "UNJUDGED", "INCONCLUSIVE", "BUSY"]

_UNFINISHED = ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "STAGE_OUT", "")
# testResult_t of nccl-tests v2.19, src/common.h; before, wrong results exited with 1.
_EXIT_MEANINGS: dict[Backend, dict[int, str]] = {
    "nccl-tests": {2: "a CUDA error", 3: "an NCCL error", 4: "a time-out", 7: "wrong results or too slow"},
    "mpi-cpu": {7: "wrong results"},
    "tcp-cpu": {3: "the ranks did not find, or lost, each other", 7: "wrong results"},
}
_TAIL_LINES, _TAIL_WIDTH = 8, 200


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


class Result(TypedDict):
    """The measurement of one scope. `wrong` counts elements, or measurements with deviations up to v2.11.

    `left_out` names nodes that other jobs kept from it, `last` what BUSY has in the place of a figure of its own.
    """

    backend: Backend
    verdict: Verdict
    reason: str
    busbw_gb_per_s: float | None
    algbw_gb_per_s: float | None
    gate_bytes: int
    floor_gb_per_s: float | None
    peak_busbw_gb_per_s: float | None
    peak_bytes: int | None
    average_busbw_gb_per_s: float | None
    wrong: int | None
    ranks: int | None
    nodes: list[str]
    transport: str | None
    interface: str | None
    job_id: int | None
    seconds: float | None
    rows: list[RowResult]
    left_out: list[str]
    measured_at: str | None
    last: LastFigure | None


def judge(asked: Measurement, report: JobReport) -> Result:
    """The result of one measurement; every outcome of the job has one, so nothing is raised."""
    if report.left_out and report.job_id is not None:
        asked = asked.without(len(report.left_out))
    table = parse(report.output)
    wrong = _wrong(table)
    # Of a job that was ended, what it had finished counts; if it completed, a table with problems gives no figure.
    ended = report.state != "COMPLETED" and table.only_unfinished
    sound = table.rows if ended or not table.problems else ()
    gate = next((row.out_of_place for row in sound if row.size_bytes == asked.gate_bytes), None)
    peak = max(sound, key=lambda row: row.out_of_place.busbw_gb_per_s, default=None)
    transport = read_transport(report.output, asked.nodes)
    verdict, reason = _verdict(asked, report, table, wrong, gate)
    return Result(
        backend=asked.backend,
        verdict=verdict,
        reason=reason,
        busbw_gb_per_s=gate.busbw_gb_per_s if gate else None,
        algbw_gb_per_s=gate.algbw_gb_per_s if gate else None,
        gate_bytes=asked.gate_bytes,
        floor_gb_per_s=asked.floor_gb_per_s,
        peak_busbw_gb_per_s=peak.out_of_place.busbw_gb_per_s if peak else None,
        peak_bytes=peak.size_bytes if peak else None,
        average_busbw_gb_per_s=table.average_busbw_gb_per_s,
        wrong=wrong,
        ranks=table.ranks,
        nodes=list(report.nodes),
        transport=transport.name,
        interface=transport.interface,
        job_id=report.job_id,
        seconds=report.seconds,
        rows=[_row(row) for row in table.rows],
        left_out=list(report.left_out),
        measured_at=_moment(report.measured_at),
        last=_last(asked, report),
    )


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _last(asked: Measurement, report: JobReport) -> LastFigure | None:
    last = report.last
    at, now = (_moment(last.measured_at), report.measured_at) if last else (None, None)
    if last is None or last.measured_at is None or at is None or now is None:
        return None
    table = parse(last.output)
    sound = (last.state, last.exit_code, last.signal, _wrong(table)) == ("COMPLETED", 0, 0, 0) and not table.problems
    figures = [row.out_of_place.busbw_gb_per_s for row in table.rows if row.size_bytes == asked.gate_bytes and sound]
    return LastFigure(
        busbw_gb_per_s=figures[0] if figures else None,
        nodes=list(last.nodes),
        measured_at=at,
        age_seconds=max(0, round(now - last.measured_at)),
    )


def _age(seconds: int) -> str:
    for unit, name in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= unit:
            return f"{seconds // unit} {name}{'s' * (seconds >= 2 * unit)}"
    return f"{seconds} second{'s' * (seconds != 1)}"


def _busy(asked: Measurement, report: JobReport) -> str:
    held = "; ".join(f"{name}: {text}" for name, text in report.facts.items())
    busy = f"Other jobs are on {', '.join(report.left_out) or 'its nodes'}{f' ({held})' if held else ''}."
    last = _last(asked, report)
    if last is None:
        return f"{busy} Nothing was measured before. The next up tries again."
    figure = last["busbw_gb_per_s"]
    words = "no figure" if figure is None else f"{figure:.3f} GB/s at {format_size(asked.gate_bytes)}"
    return (
        f"{busy} The last measurement, {_age(last['age_seconds'])} ago on {', '.join(last['nodes']) or 'no nodes'}, "
        f"gave {words}. The next up tries again."
    )


def _verdict(
    asked: Measurement, report: JobReport, table: Table, wrong: int | None, gate: Timing | None
) -> tuple[Verdict, str]:
    if wrong:
        return "FAIL", f"The data was wrong: {wrong} out of bounds.{_context(report)}"
    if report.state == "BUSY":
        return "BUSY", _busy(asked, report)
    if report.state == "UNAVAILABLE":
        return "INCONCLUSIVE", f"No job was submitted: {', '.join(report.left_out)} cannot run one.{_findings(report)}"
    if report.state in _UNFINISHED:
        state = report.state or "in no known state"
        return "INCONCLUSIVE", f"The job was still {state} when the wait ended.{_context(report)}"
    if report.state != "COMPLETED" or report.exit_code or report.signal:
        return "FAIL", f"The job did not complete: {_ending(asked, report)}.{_context(report)}"
    doubts = _doubts(asked, report, table, wrong)
    if doubts or gate is None:
        return "INCONCLUSIVE", f"Not a whole measurement: {'; '.join(doubts)}.{_context(report)}"
    measured = f"{gate.busbw_gb_per_s:.3f} GB/s of bus bandwidth at {format_size(asked.gate_bytes)}"
    if report.left_out:
        measured += f" between {', '.join(report.nodes)} alone, as other jobs were on {', '.join(report.left_out)}"
    if asked.floor_gb_per_s is None:
        return "UNJUDGED", f"Measured {measured}; no floor is known for this hardware."
    if gate.busbw_gb_per_s < asked.floor_gb_per_s:
        below = f"Measured {measured}, below the floor of {asked.floor_gb_per_s:g} GB/s."
        return "FAIL", f"{below}{_findings(report)}"
    return "PASS", f"Measured {measured}, at or above the floor of {asked.floor_gb_per_s:g} GB/s."


def _doubts(asked: Measurement, report: JobReport, table: Table, wrong: int | None) -> list[str]:
    doubts = list(table.problems)
    if report.exit_code is None:
        doubts.append("the job's exit code is not known")
    measured = {row.size_bytes for row in table.rows}
    missing = [format_size(size) for size in asked.sizes() if size not in measured]
    if missing:
        doubts.append(f"no complete row for {', '.join(missing)}")
    if table.ranks is None:
        doubts.append("the output names no ranks")
    elif table.ranks != asked.ranks:
        doubts.append(f"{table.ranks} ranks took part where {asked.ranks} were asked for")
    if len(table.hosts) != asked.nodes:
        doubts.append(f"the ranks ran on {len(table.hosts)} nodes where {asked.nodes} were asked for")
    if wrong is None:
        doubts.append("whether the data was right is not known")
    return doubts


def _wrong(table: Table) -> int | None:
    """Wrong elements over all rows; None unless every one was checked and the program said so to its end."""
    halves = [half for row in table.rows for half in (row.out_of_place, row.in_place)]
    counted = sum(half.wrong for half in halves if half.wrong is not None)
    if counted or table.out_of_bounds:
        return counted or table.out_of_bounds
    return 0 if halves and all(half.checked for half in halves) and table.out_of_bounds == 0 else None


def _ending(asked: Measurement, report: JobReport) -> str:
    words = [f"state {report.state}"]
    if report.exit_code is not None:
        meaning = _EXIT_MEANINGS[asked.backend].get(report.exit_code)
        words.append(f"exit code {report.exit_code}" + (f" ({meaning})" if meaning else ""))
    if report.signal:
        words.append(f"signal {report.signal}")
    return ", ".join(words)


def _context(report: JobReport) -> str:
    """What a person needs to see why: findings on the nodes and the end of the output."""
    lines = [line.strip()[:_TAIL_WIDTH] for line in report.output.splitlines() if line.strip(" #\t")]
    tail = " | ".join(lines[-_TAIL_LINES:])
    return _findings(report) + (f" Last lines of output: {tail}" if tail else " The job wrote no output.")


def _findings(report: JobReport) -> str:
    states = " | ".join(line.strip() for line in report.node_states.splitlines() if line.strip())
    facts = "; ".join(f"{name}: {text}" for name, text in report.facts.items())
    return (f" Node states: {states}." if states else "") + (f" Found on the nodes: {facts}." if facts else "")


def _row(row: Row) -> RowResult:
    return RowResult(bytes=row.size_bytes, out_of_place=_half(row.out_of_place), in_place=_half(row.in_place))


def _half(timing: Timing) -> HalfResult:
    return HalfResult(
        time_us=timing.time_us,
        algbw_gb_per_s=timing.algbw_gb_per_s,
        busbw_gb_per_s=timing.busbw_gb_per_s,
        wrong=timing.wrong,
    )
