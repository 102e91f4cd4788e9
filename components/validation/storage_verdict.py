"""Turn the report of a storage measurement into its output, judged by node and target like the bandwidth (verdict.py).

The verdict depends on the medians of three runs. A value that was not measured is None, never 0.
"""

from collections.abc import Mapping
from typing import Any

from components.validation.figures import spread_of
from components.validation.model import NO_REPORT, JobReport, format_size
from components.validation.storage_figures import FIGURES, LATE, LATENCY, StorageFigures, read_storage
from components.validation.verdict import Verdict, busy, not_completed, of_job
from components.validation.wording import context

# Above this spread, a run below the floor makes a figure UNSTABLE although the median is above it.
LARGEST_SPREAD = 0.5
_WORST_FIRST: tuple[Verdict, ...] = ("FAIL", "INCONCLUSIVE", "UNSTABLE", "UNJUDGED", "PASS")
_MOST_NAMED = 6

# By node and target.
Floors = Mapping[str, Mapping[str, Mapping[str, float]]]


def judge_storage(
    step_report: Mapping[str, Any], paths: Mapping[str, Mapping[str, str]], floors: Floors, size: int
) -> dict[str, Any]:
    """Return the result of the step's report, which is untrusted output of a user. Nothing is raised.

    Its `nodes` has, by node, the result of each target by its name.

    paths    by node, the path of each target that it has
    floors   the config's floors by node and target
    size     bytes of the large file
    """
    try:
        report = JobReport.from_json({**step_report, "last": None})
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        reason = "The report cannot be read. Change tailrack:validation.rerun to measure again."
        return _result(NO_REPORT, ("INCONCLUSIVE", reason), {}, size)
    if report.state == "BUSY":
        return _result(report, ("BUSY", f"{busy(report)} No storage was measured. The next up tries again."), {}, size)
    figures = read_storage(report.output)
    nodes = {
        node: {
            target: _judge(node, target, path, figures.get((node, target)), floors.get(node, {}).get(target, {}))
            for target, path in paths[node].items()
        }
        for node in report.nodes
        if node in paths
    }
    verdict, reason = _overall(report, nodes)
    checkpoints = _checkpoints(
        {place: found for place, found in figures.items() if place[1] in nodes.get(place[0], {})}
    )
    sentences = [_sentence(target, result) for target, result in checkpoints.items()]
    return {**_result(report, (verdict, " ".join([reason, *sentences])), nodes, size), "checkpoint": checkpoints}


def _checkpoints(figures: Mapping[tuple[str, str], StorageFigures]) -> dict[str, dict[str, Any]]:
    """Return each target's checkpoint, if all ranks saved and restored it. The slowest node decides."""
    results: dict[str, dict[str, Any]] = {}
    for target in dict.fromkeys(target for _, target in figures):
        of_nodes = [found.checkpoint for (_, name), found in figures.items() if name == target and found.checkpoint]
        if not of_nodes or any(not node.get("save_seconds") or not node.get("restore_seconds") for node in of_nodes):
            continue
        total = sum(node.get("save_bytes", 0) for node in of_nodes)
        results[target] = {"bytes": int(total), "ranks": int(sum(node.get("save_ranks", 0) for node in of_nodes))}
        for name in ("save", "restore"):
            slowest = max(node[f"{name}_seconds"] for node in of_nodes)
            results[target] |= {f"{name}_seconds": slowest, f"{name}_gb_per_s": total / slowest / 1e9}
    return results


def _sentence(target: str, result: Mapping[str, Any]) -> str:
    parts = [
        f"{verb} in {result[f'{name}_seconds']:.3g} s ({result[f'{name}_gb_per_s']:.3g} GB/s)"
        for name, verb in (("save", "saved"), ("restore", "restored"))
    ]
    size = format_size(result["bytes"])
    return f"A checkpoint of {size} by {result['ranks']} ranks on {target} was {' and '.join(parts)}."


def _judge(
    node: str, target: str, path: str, figures: StorageFigures | None, floors: Mapping[str, float]
) -> dict[str, Any]:
    """Return the result of one target on one node.

    direct       whether direct I/O was used; if not, the page cache was emptied before reading
    written_by   the node that wrote the file that was read; None for the node itself
    read_only    whether the user who measures cannot write there: then an existing file was read
    """
    figures = figures or StorageFigures(problem="the node reported no figure")
    verdict, reason = _verdict(f"{target} on {node}", figures, floors)
    return dict(
        verdict=verdict,
        reason=reason,
        path=path,
        file_system=figures.file_system or None,
        direct=figures.direct,
        written_by=figures.written_by or None,
        read_only=figures.read_only,
        **{name: figures.median(name) for name in (*FIGURES, LATE)},
        floors=dict(floors),
        spread={name: spread for name in FIGURES if (spread := spread_of(figures.runs.get(name, ())))},
    )


def _verdict(subject: str, figures: StorageFigures, floors: Mapping[str, float]) -> tuple[Verdict, str]:
    below = [text for name in floors if (text := _below(name, figures, floors[name]))]
    if below:
        return "FAIL", f"{subject}: {', '.join(below)}."
    missing = [name for name in FIGURES if name in figures.missing or (name in floors and not figures.runs.get(name))]
    if figures.problem or missing:
        listed = ", ".join(FIGURES[name] for name in missing)
        text = figures.problem or f"not measured{' because it is read-only' * figures.read_only}: {listed}"
        # A read-only target without a file to read is no fault, unless the config expects figures of it.
        return "UNJUDGED" if figures.read_only and not floors else "INCONCLUSIVE", f"{subject}: {text}."
    unstable = [text for name in floors if (text := _unstable(name, figures, floors[name]))]
    if unstable:
        return "UNSTABLE", f"{subject}: {', '.join(unstable)}."
    if not floors:
        return "UNJUDGED", f"{subject}: the config has no floor."
    return "PASS", f"{subject}: {', '.join(_measured(name, figures) for name in floors)}, within the floors."


def _measured(name: str, figures: StorageFigures) -> str:
    return f"{number(figures.median(name) or 0)} {FIGURES[name]}"


def _fails(name: str, value: float, floor: float) -> bool:
    return value > floor if name == LATENCY else value < floor


def _below(name: str, figures: StorageFigures, floor: float) -> str:
    value = figures.median(name)
    if value is None or not _fails(name, value, floor):
        return ""
    side = "above the limit" if name == LATENCY else "below the floor"
    return f"{_measured(name, figures)}, {side} of {number(floor)}"


def _unstable(name: str, figures: StorageFigures, floor: float) -> str:
    runs = figures.runs[name]
    spread = spread_of(runs) or {"relative": 0}
    if spread["relative"] <= LARGEST_SPREAD or not any(_fails(name, run, floor) for run in runs):
        return ""
    listed = ", ".join(map(number, runs))
    return f"{_measured(name, figures)}, but the runs gave {listed}, on both sides of {number(floor)}"


def number(value: float) -> str:
    """Return a figure as text, with at least three digits unless they are zeros."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _overall(report: JobReport, nodes: Mapping[str, Mapping[str, Any]]) -> tuple[Verdict, str]:
    """Return the worst verdict, with the nodes and targets that have it."""
    results = [result for by_target in nodes.values() for result in by_target.values()]
    ended = not_completed("storage", report)
    if ended and (not results or all(result["verdict"] == "INCONCLUSIVE" for result in results)):
        return ended
    if not results:
        return "INCONCLUSIVE", f"No storage was measured.{context(report)}"
    worst = min((result["verdict"] for result in results), key=_WORST_FIRST.index)
    reasons = [result["reason"] for result in results if result["verdict"] == worst]
    listed = " ".join(reasons[:_MOST_NAMED]) + (f" {len(reasons) - _MOST_NAMED} more." if reasons[_MOST_NAMED:] else "")
    if worst == "UNJUDGED" and all(result["verdict"] == worst for result in results):
        listed = f"Measured storage on {', '.join(nodes)}; the config has no floors."
    elif worst == "PASS":
        listed = f"Storage on {', '.join(nodes)} is within the floors."
    reason = f"{listed}{_without(report)}"
    return (worst, reason) if ended is None else ("FAIL", f"{ended[1]} {reason}")


def _without(report: JobReport) -> str:
    out = [f"{name} ({report.absent.get(name, 'other jobs')})" for name in report.left_out]
    return f" Not measured: {', '.join(out)}." if out else ""


def _result(
    report: JobReport, verdict: tuple[Verdict, str], nodes: dict[str, dict[str, Any]], size: int
) -> dict[str, Any]:
    return {
        "verdict": verdict[0],
        "reason": verdict[1],
        "nodes": nodes,
        "size_bytes": size,
        **of_job(report),
    }
