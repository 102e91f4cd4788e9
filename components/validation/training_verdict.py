"""Turns the report of a training benchmark into what a stack outputs of it: judged like the bandwidth (verdict.py).

Judged are images a second and rank, which is a GPU, or a node where they have none: by the step in the middle of the
run in the middle. A figure that was not measured is None, never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from components.validation.figures import largest_spread
from components.validation.model import JobReport
from components.validation.training_figures import TrainingFigures, read_training
from components.validation.verdict import Verdict, moment, not_completed
from components.validation.wording import beside, context, findings, odd_run, without

RUNS = 3
BACKEND = "training"


class TrainingSpread(TypedDict):
    """Images a second of all ranks by run, and (largest - smallest) / middle of them."""

    runs: list[float]
    relative: float


class TrainingResult(TypedDict):
    """The training benchmark. `device` is GPU or CPU; a rank is one GPU, or all CPUs of one node.

    jitter   share of the step in the middle by which a step is longer that 5 % of the steps are slower than
    """

    verdict: Verdict
    reason: str
    device: str | None
    devices: list[str]
    images_per_second: float | None
    images_per_second_per_rank: float | None
    jitter: float | None
    floor_images_per_second: float | None
    floor_source: str | None
    spread: TrainingSpread | None
    ranks: int | None
    nodes: list[str]
    left_out: list[str]
    version: int | None
    how: dict[str, Any]
    job_id: int | None
    seconds: float | None
    measured_at: str | None


@dataclass(frozen=True)
class TrainingAsked:
    """What was asked: ranks over nodes, on GPUs or not, and whether the gradients went between sites."""

    nodes: int
    ranks: int
    on_gpus: bool
    spans: bool
    floor: float | None = None
    floor_source: str = "config"


def judge_training(found: Mapping[str, Any], floor: float | None, source: str = "config") -> TrainingResult:
    """The result of what the step has brought back: words of a user, which may be anything. Nothing is raised.

    floor    least images a second and rank, of the config; None for none
    source   where it is from
    """
    try:
        asked, report = _asked(found, floor, source), JobReport.from_json({**found, "last": None})
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        asked = TrainingAsked(0, 0, on_gpus=False, spans=False, floor=floor, floor_source=source)
        report = JobReport(job_id=None, state="", exit_code=None, signal=None, seconds=None, nodes=(), output="")
        words = "The report cannot be read. Change tailrack:validation.rerun to measure again."
        return _result(asked, report, TrainingFigures(), ("INCONCLUSIVE", words))
    figures = read_training(report.output)
    return _result(asked, report, figures, _verdict(asked, report, figures))


def _asked(found: Mapping[str, Any], floor: float | None, source: str) -> TrainingAsked:
    told = found.get("asked") or {"nodes": 0, "ranks": 0, "on_gpus": False, "spans": False}
    for name, kind in (("nodes", int), ("ranks", int), ("on_gpus", bool), ("spans", bool)):
        if not isinstance(told[name], kind):
            raise ValueError(f"{name} is none")
    return TrainingAsked(told["nodes"], told["ranks"], told["on_gpus"], told["spans"], floor, source)


def _verdict(asked: TrainingAsked, report: JobReport, figures: TrainingFigures) -> tuple[Verdict, str]:
    if report.state == "BUSY":
        held = "; ".join(f"{name}: {text}" for name, text in report.facts.items())
        busy = f"Other jobs are on {', '.join(report.left_out) or 'its nodes'}{f' ({held})' if held else ''}"
        return "BUSY", f"{busy}. Nothing was trained. The next up tries again."
    if figures.missing:
        return "INCONCLUSIVE", _no_torch(figures)
    if ended := not_completed(BACKEND, report):
        return ended
    if found := _doubts(asked, report, figures):
        return "INCONCLUSIVE", f"Not a whole measurement: {'; '.join(found)}.{context(report)}"
    wrong = [f"run {at}" for at, run in enumerate(figures.runs, 1) if run.loss is None or not run.alike]
    if wrong:
        said = "the loss is no number, or the ranks' models differ, which the gradients should have kept alike"
        return "FAIL", f"The training was wrong in {', '.join(wrong)}: {said}.{findings(report)}"
    return _by_figures(asked, report, figures)


def _by_figures(asked: TrainingAsked, report: JobReport, figures: TrainingFigures) -> tuple[Verdict, str]:
    at, relative = figures.judged, figures.relative_spread
    rate = figures.rates[at or 0] / (figures.ranks or 1)
    what = "GPU" if figures.on_gpus else "node, on its CPUs"
    measured = f"{rate:,.1f} images a second and {what}{without(report)}"
    # Sockets share the CPUs with all else, and so does training on them.
    limit = largest_spread(None if figures.on_gpus and not asked.spans else "sockets")
    if asked.floor is not None and rate < asked.floor:
        return "FAIL", f"Trained {measured}, below the floor of {asked.floor:g}.{beside(report)}{findings(report)}"
    if relative is not None and relative > limit:
        runs = ", ".join(f"{each:,.1f}" for each in figures.rates)
        _, name = odd_run(figures.rates, figures.rates[at or 0])
        words = f"its runs gave {runs} in all and differ by {relative:.0%}, more than {limit:.0%}"
        words += f"; {name}"
        return "UNSTABLE", f"Trained {measured}, but {words}.{beside(report)}{findings(report)}"
    if asked.floor is None:
        return "UNJUDGED", f"Trained {measured}; no floor is known for this hardware."
    return "PASS", f"Trained {measured}, at or above the floor of {asked.floor:g}."


def _no_torch(figures: TrainingFigures) -> str:
    return (
        f"There is no PyTorch for {', '.join(figures.missing)}: write the Python that has it in "
        "tailrack:validation.training.python, or an image that has it in tailrack:validation.training.image, or "
        "install it there (Debian: python3-torch); then change tailrack:validation.rerun. The nodes and their "
        "bandwidth are not touched by this."
    )


def _doubts(asked: TrainingAsked, report: JobReport, figures: TrainingFigures) -> list[str]:
    found = list(figures.problems)
    if figures.ranks != asked.ranks:
        found.append(f"{figures.ranks or 'no'} ranks took part where {asked.ranks} were asked for")
    if len({*figures.hosts}) != asked.nodes:
        found.append(f"they ran on {len({*figures.hosts})} nodes where {asked.nodes} were asked for")
    if figures.on_gpus != asked.on_gpus:
        used, wanted = ("GPUs" if each else "CPUs" for each in (figures.on_gpus, asked.on_gpus))
        found.append(f"it ran on {used}, and not on {wanted}")
    if len(figures.runs) != RUNS or not figures.ended:
        found.append(f"{len(figures.runs)} of {RUNS} runs came to their end")
    if report.exit_code is None:
        found.append("the job's exit code is not known")
    return found


def _result(
    asked: TrainingAsked, report: JobReport, figures: TrainingFigures, judged: tuple[Verdict, str]
) -> TrainingResult:
    # A job that did not complete, output that contradicts itself and a wrong run give no figure.
    at = None if not_completed(BACKEND, report) or _doubts(asked, report, figures) else figures.judged
    at = None if at is not None and any(run.loss is None or not run.alike for run in figures.runs) else at
    rate = None if at is None else figures.rates[at]
    relative = figures.relative_spread
    spread = None if rate is None or relative is None else TrainingSpread(runs=list(figures.rates), relative=relative)
    return TrainingResult(
        verdict=judged[0],
        reason=judged[1],
        device=("GPU" if figures.on_gpus else "CPU") if figures.ranks else None,
        devices=list(figures.devices),
        images_per_second=rate,
        images_per_second_per_rank=None if rate is None else rate / (figures.ranks or 1),
        jitter=None if at is None else figures.runs[at].jitter,
        floor_images_per_second=asked.floor,
        floor_source=None if asked.floor is None else asked.floor_source,
        spread=spread,
        ranks=figures.ranks,
        nodes=list(report.nodes),
        left_out=list(report.left_out),
        version=figures.version,
        how=dict(figures.how),
        job_id=report.job_id,
        seconds=report.seconds,
        measured_at=moment(report.measured_at),
    )
