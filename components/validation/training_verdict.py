"""Turn the report of a training benchmark into its output, judged like the bandwidth (verdict.py).

The report has the output of examples/training/benchmark.py, which is untrusted output of a user's job.
The verdict depends on images per second and rank in the median step of the median run. A rank is a GPU, or a node
without GPUs. A value that was not measured is None, never 0.
"""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from components.validation.figures import largest_spread, spread_of
from components.validation.model import NO_REPORT, JobReport
from components.validation.transport import SOCKETS, read_transport
from components.validation.untrusted import read
from components.validation.verdict import Verdict, busy, not_completed, of_job
from components.validation.wording import beside, circumstances, context, findings, unsteady, without

PREFIX = "tailrack-training"
MISSING = f"{PREFIX}-missing"
_LATE_SHARE = 0.95
_Text = Annotated[str, r"[ -~]{0,99}"]


@dataclass(frozen=True)
class TrainingRun:
    """One run: seconds of each step, the final loss (None if it is not a number), and whether all ranks agree."""

    seconds: tuple[float, ...]
    loss: float | None
    alike: bool

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def jitter(self) -> float:
        """How much longer than the median the slowest 5 % of the steps take at least, as a fraction."""
        ranked = sorted(self.seconds)
        return ranked[math.ceil(_LATE_SHARE * len(ranked)) - 1] / self.median - 1


@dataclass(frozen=True)
class TrainingFigures:
    """The valid part of the output. `batch` is images per rank and step; missing values are None or empty.

    missing    nodes whose Python has no PyTorch
    problems   problems of the output, in words
    """

    version: int | None = None
    ranks: int | None = None
    batch: int | None = None
    on_gpus: bool = False
    hosts: tuple[_Text, ...] = ()
    devices: tuple[_Text, ...] = ()
    how: Mapping[str, Any] = field(default_factory=dict)
    runs: tuple[TrainingRun, ...] = ()
    ended: bool = False
    missing: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def rates(self) -> tuple[float, ...]:
        """Images per second of all ranks together by run, from the median step."""
        return tuple((self.batch or 0) * (self.ranks or 0) / run.median for run in self.runs)

    @property
    def judged(self) -> int | None:
        """The index of the median run, the lower one of two; None without runs."""
        ranked = sorted(range(len(self.runs)), key=lambda number: self.rates[number])
        return ranked[(len(ranked) - 1) // 2] if ranked else None


def read_training(text: str) -> TrainingFigures:
    """Return the figures in a job's output, as far as they go; nothing is raised."""
    settings: Mapping[str, Any] | None = None
    runs, problems, missing, ended = list[TrainingRun](), list[str](), list[str](), False
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == MISSING:
            missing.append(rest.strip()[:63])
        if word != PREFIX:
            continue
        kind, _, text_of_line = rest.partition(" ")
        try:
            data = json.loads(text_of_line)
            if kind == "begin" and settings is None:
                settings = _about(data)
            elif kind == "run" and settings is not None and data["run"] == len(runs) + 1:
                runs.append(_run(data))
            elif kind == "end" and data["runs"] == len(runs):
                ended = True
            else:
                problems.append(f"a line '{kind[:20]}' is out of place")
        except (ValueError, TypeError, LookupError, RecursionError, AttributeError):
            problems.append(f"a line '{kind[:20]}' cannot be read")
    return TrainingFigures(
        **(settings or {}), runs=tuple(runs), ended=ended, missing=tuple(sorted({*missing})), problems=tuple(problems)
    )


def _about(data: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("version", "ranks", "batch", "on_gpus", "hosts", "devices")
    about = read(TrainingFigures, {key: data[key] for key in keys})
    how = {name: data[name] for name in ("width", "pixels", "precision", "torch") if isinstance(data[name], str | int)}
    return {**{key: getattr(about, key) for key in keys}, "how": how}


def _run(data: Mapping[str, Any]) -> TrainingRun:
    run = read(TrainingRun, data)
    if min(run.seconds) <= 0:
        raise ValueError("a step took no time")
    return run


RUNS = 3


@dataclass(frozen=True)
class TrainingSettings:
    """The settings: ranks over nodes, on GPUs or not, and whether gradients travel between sites."""

    nodes: int = 0
    ranks: int = 0
    on_gpus: bool = False
    spans: bool = False
    floor: float | None = None
    floor_source: str = "config"


def judge_training(step_report: Mapping[str, Any], floor: float | None, source: str = "config") -> dict[str, Any]:
    """Return the result of the step's report, which is untrusted output of a user. Nothing is raised.

    Its `jitter` is how much longer than the median the slowest 5 % of the steps take at least, as a fraction; `device`
    is GPU or CPU.

    floor    minimum images per second and rank from the config; None without one
    source   source of the floor
    """
    settings = TrainingSettings(floor=floor, floor_source=source)
    try:
        asked = {**(step_report.get("asked") or {}), "floor": floor, "floor_source": source}
        settings, report = read(TrainingSettings, asked), JobReport.from_json({**step_report, "last": None})
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        reason = "The report cannot be read. Change tailrack:validation.rerun to measure again."
        return _result(settings, NO_REPORT, TrainingFigures(), ("INCONCLUSIVE", reason), None)
    figures = read_training(report.output)
    ended, problems = not_completed("training", report), _problems(settings, report, figures)
    wrong = [f"run {number}" for number, run in enumerate(figures.runs, 1) if run.loss is None or not run.alike]
    # A failed job, inconsistent output and a wrong run give no figures.
    run = None if ended or problems or wrong else figures.judged
    verdict: tuple[Verdict, str]
    if report.state == "BUSY":
        verdict = "BUSY", f"{busy(report)} Nothing was trained. The next up tries again."
    elif figures.missing:
        verdict = "INCONCLUSIVE", _no_torch(figures)
    elif ended:
        verdict = ended
    elif problems:
        verdict = "INCONCLUSIVE", f"The measurement is incomplete: {'; '.join(problems)}.{context(report)}"
    elif wrong:
        cause = "the loss is not a number, or the ranks' models differ although gradients should keep them equal"
        verdict = "FAIL", f"The training was wrong in {', '.join(wrong)}: {cause}.{findings(report)}"
    else:
        verdict = _by_figures(settings, report, figures)
    return _result(settings, report, figures, verdict, run)


def _by_figures(settings: TrainingSettings, report: JobReport, figures: TrainingFigures) -> tuple[Verdict, str]:
    rate = figures.rates[figures.judged or 0] / (figures.ranks or 1)
    unit = "GPU" if figures.on_gpus else "node (on its CPUs)"
    measured = f"{rate:,.1f} images per second and {unit}{without(report)}"
    # Sockets and training on CPUs share the CPUs with other work.
    used = read_transport(report.log, settings.nodes).name if figures.on_gpus and not settings.spans else SOCKETS
    limit = largest_spread(used)
    details = f"{circumstances(report)}{beside(report)}{findings(report)}"
    if settings.floor is not None and rate < settings.floor:
        return "FAIL", f"Trained {measured}, below the floor of {settings.floor:g}.{details}"
    _, text = unsteady(figures.rates, limit, f"{_listed(figures.rates)} in all")
    if text:
        if report.first_runs:
            text += f" It was measured twice; the first runs gave {_listed(report.first_runs)}."
        return "UNSTABLE", f"Trained {measured}, but {text}{details}"
    if report.first_runs:
        measured += f" in a second measurement (the runs of the first gave {_listed(report.first_runs)})"
    if settings.floor is None:
        details = f"{circumstances(report)}{beside(report)}"
        return "UNJUDGED", f"Trained {measured}; no floor is known for this hardware.{details}"
    return "PASS", f"Trained {measured}, at or above the floor of {settings.floor:g}."


def _listed(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:,.1f}" for rate in rates)


def _no_torch(figures: TrainingFigures) -> str:
    return (
        f"PyTorch is missing on {', '.join(figures.missing)}. Set tailrack:validation.training.python to a Python "
        "with PyTorch or tailrack:validation.training.image to an image with it, or install it on these nodes (Debian: "
        "python3-torch); then change tailrack:validation.rerun. This does not affect the nodes or their bandwidth."
    )


def _problems(settings: TrainingSettings, report: JobReport, figures: TrainingFigures) -> list[str]:
    problems = list(figures.problems)
    if figures.ranks != settings.ranks:
        problems.append(f"{figures.ranks or 'no'} ranks took part instead of {settings.ranks}")
    if len({*figures.hosts}) != settings.nodes:
        problems.append(f"they ran on {len({*figures.hosts})} nodes instead of {settings.nodes}")
    if figures.on_gpus != settings.on_gpus:
        used, wanted = ("GPUs" if on_gpus else "CPUs" for on_gpus in (figures.on_gpus, settings.on_gpus))
        problems.append(f"it ran on {used} instead of {wanted}")
    if len(figures.runs) != RUNS or not figures.ended:
        problems.append(f"{len(figures.runs)} of {RUNS} runs were completed")
    if report.exit_code is None:
        problems.append("the job's exit code is unknown")
    return problems


def _result(
    settings: TrainingSettings,
    report: JobReport,
    figures: TrainingFigures,
    verdict: tuple[Verdict, str],
    run: int | None,
) -> dict[str, Any]:
    """Return the output; `run` is the index of the judged run, None without valid figures."""
    rate = None if run is None else figures.rates[run]
    return {
        "verdict": verdict[0],
        "reason": verdict[1],
        "device": ("GPU" if figures.on_gpus else "CPU") if figures.ranks else None,
        "devices": list(figures.devices),
        "images_per_second": rate,
        "images_per_second_per_rank": None if rate is None else rate / (figures.ranks or 1),
        "jitter": None if run is None else figures.runs[run].jitter,
        "floor_images_per_second": settings.floor,
        "floor_source": None if settings.floor is None else settings.floor_source,
        "spread": None if rate is None else spread_of(figures.rates),
        "ranks": figures.ranks,
        "nodes": list(report.nodes),
        "version": figures.version,
        "how": dict(figures.how),
        **of_job(report),
    }
