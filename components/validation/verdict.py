"""Turn a job's report into the result that a stack outputs.

The verdict depends on the out-of-place bus bandwidth at `gate_bytes`. The average over sizes is not judged, because it
mixes latency and bandwidth. A value that was not measured is None, never 0.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from components.validation.figures import Figures, doubts, largest_spread, read_figures, spread_of, wrong_data
from components.validation.model import JobReport, Measurement, format_size
from components.validation.nccl_tests import Timing, read_versions
from components.validation.transport import NOTHING, Expected, Transport, complaint, proven, read_transport
from components.validation.wording import age, beside, circumstances, context, ending, findings, unsteady, without

Verdict = Literal["PASS", "FAIL", "UNJUDGED", "UNSTABLE", "INCONCLUSIVE", "BUSY"]

_UNFINISHED = ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "STAGE_OUT", "")


# The measurement of one scope, as the stack outputs it (`judge`, docs/commands.md).
Result = dict[str, Any]


def judge(settings: Measurement, report: JobReport, expected: Expected = NOTHING) -> Result:
    """Return the result of one measurement, whatever its outcome; nothing is raised.

    wrong      counts elements, or measurements with deviations up to v2.11
    spread     GB/s of the runs at the gate size, and (largest - smallest) / median
    left_out   nodes that did not take part
    last       the earlier measurement that BUSY reports
    groups     nodes with the same GPUs, if the scope has several such groups; all other figures are those of the group
               with the most GPUs
    collectives   by name, the results of further collectives that the same job measured
    versions   versions of NCCL, CUDA and nccl-tests, as far as the job printed them
    """
    if report.left_out and report.job_id is not None:
        settings = settings.without(len(report.left_out))
    figures = read_figures(settings, report)
    table, gate, peak = figures.tables[0], figures.gate, figures.peak
    transport = read_transport(report.log + report.output, settings.nodes)
    verdict, reason = _verdict(settings, report, figures, expected, transport)
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
        spread=spread_of(figures.runs),
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
        rows=[
            {"bytes": row.size_bytes, "out_of_place": _half(row.out_of_place), "in_place": _half(row.in_place)}
            for row in figures.rows
        ],
        groups=[],
        collectives={},
        **of_job(report),
        last=_last(settings, report),
        preflight={},
        suspects=[],
    )


def of_job(report: JobReport) -> dict[str, Any]:
    """Return the part of a result that all measurements have."""
    return {
        "left_out": list(report.left_out),
        "job_id": report.job_id,
        "seconds": report.seconds,
        "measured_at": moment(report.measured_at),
    }


def moment(seconds: float | None) -> str | None:
    """Return a Unix time in the format of outputs."""
    return None if seconds is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _last(settings: Measurement, report: JobReport) -> dict[str, Any] | None:
    last = report.last
    measured_at, reported_at = (moment(last.measured_at), report.measured_at) if last else (None, None)
    if last is None or last.measured_at is None or measured_at is None or reported_at is None:
        return None
    figures = read_figures(settings, last)
    complete = (last.state, last.exit_code, last.signal, figures.wrong) == ("COMPLETED", 0, 0, 0)
    gate = figures.gate if complete and not any(table.problems for table in figures.tables) else None
    return {
        "busbw_gb_per_s": gate.busbw_gb_per_s if gate else None,
        "nodes": list(last.nodes),
        "measured_at": measured_at,
        "age_seconds": max(0, round(reported_at - last.measured_at)),
    }


def _busy(settings: Measurement, report: JobReport) -> str:
    last = _last(settings, report)
    if last is None:
        return f"{busy(report)} Nothing was measured before. The next up tries again."
    figure = last["busbw_gb_per_s"]
    result = "no figure" if figure is None else f"{figure:.3f} GB/s at {format_size(settings.gate_bytes)}"
    when = f"{age(last['age_seconds'])} ago on {', '.join(last['nodes']) or 'no nodes'}"
    return f"{busy(report)} The last measurement, {when}, gave {result}. The next up tries again."


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
    odd, text = unsteady(figures.runs, largest_spread(transport.name), _listed(figures.runs))
    if text and report.first_runs:
        text += f" It was measured twice; the first runs gave {_listed(report.first_runs)}."
    return text + beside(report, odd) if text else ""


def _half(timing: Timing) -> dict[str, Any]:
    return {name: value for name, value in asdict(timing).items() if name != "checked"}


def busy(report: JobReport) -> str:
    """Return which nodes run which other jobs."""
    facts = "; ".join(f"{name}: {text}" for name, text in report.facts.items())
    return f"Other jobs are on {', '.join(report.left_out) or 'its nodes'}{f' ({facts})' if facts else ''}."
