"""Sentences for the reason of a result: busy nodes, the end of a job, and observations."""

import re
from collections.abc import Mapping, Sequence

from components.validation.causes import cause_of, first_error, first_exit
from components.validation.model import JobReport
from components.validation.nccl_output import loaded_nccl
from components.validation.preflight.foreign import NOT_KNOWN, NOTHING

# testResult_t of nccl-tests v2.19, src/common.h; earlier releases exit with 1 on wrong results.
_EXIT_MEANINGS: Mapping[str, Mapping[int, str]] = {
    "nccl-tests": {2: "a CUDA error", 3: "an NCCL error", 4: "a timeout", 7: "wrong results or too slow"},
    "mpi-cpu": {7: "wrong results"},
    "tcp-cpu": {3: "the ranks could not connect, or lost a connection", 7: "wrong results"},
}
_BY_IMAGE = re.compile(r"^# tailrack image sets (NCCL_[ -~]{1,200})$", re.MULTILINE)
_SET = re.compile(r"NCCL INFO (NCCL_[A-Z0-9_]{1,60}) set by environment to ([!-~]{1,200}?)\.?$", re.MULTILINE)
# Settings that tailrack makes itself (measurement/rank.sh): they are never the cause.
_OWN = re.compile(r"^# tailrack sets (NCCL_[ -~]{1,200})$", re.MULTILINE)
_WARNING = re.compile(r" NCCL WARN (.+)$", re.MULTILINE)
_TAIL_LINES, _TAIL_WIDTH, _MOST_WARNINGS = 8, 200, 3


def age(seconds: int) -> str:
    for unit, name in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= unit:
            return f"{seconds // unit} {name}{'s' * (seconds >= 2 * unit)}"
    return f"{seconds} second{'s' * (seconds != 1)}"


def ending(backend: str, report: JobReport) -> str:
    parts = [f"state {report.state}"]
    if report.exit_code is not None:
        parts.append(_exit(backend, report.exit_code))
    if report.signal:
        parts.append(f"signal {report.signal}")
    first = first_exit(report.output)
    if first is not None and first[1] != report.exit_code:
        parts.append(f"after {first[0]} ended with {_exit(backend, first[1])}")
    return ", ".join(parts)


def _exit(backend: str, code: int) -> str:
    meaning = _EXIT_MEANINGS.get(backend, {}).get(code)
    return f"exit code {code}" + (f" ({meaning})" if meaning else "")


def context(report: JobReport) -> str:
    """Return a known cause or the first error, the observations on the nodes, and the end of the output."""
    texts = (report.output, *report.repeats, report.log)
    cause, error = cause_of(*texts), first_error(*texts)
    reason = f" Cause: {cause}." if cause else f" First error: {error}." if error else ""
    lines = [line.strip()[:_TAIL_WIDTH] for line in report.output.splitlines() if line.strip(" #\t")]
    tail = " | ".join(lines[-_TAIL_LINES:])
    return (
        reason
        + circumstances(report)
        + beside(report)
        + findings(report)
        + (f" Last lines of output: {tail}" if tail else " The job wrote no output.")
    )


def circumstances(report: JobReport) -> str:
    """Return NCCL's own warnings, the library that the ranks loaded, and the settings that it got from others."""
    text = "\n".join((report.output, *report.repeats, report.log))
    warnings = dict.fromkeys(match[1].strip()[:_TAIL_WIDTH] for match in _WARNING.finditer(text))
    quoted = "; ".join(f"'{warning}'" for warning in [*warnings][:_MOST_WARNINGS])
    return (f" NCCL warns: {quoted}." if quoted else "") + loaded_nccl(text) + environment_settings(text)


def findings(report: JobReport) -> str:
    """Return Slurm's node states and the observations on the nodes."""
    states = " | ".join(line.strip() for line in report.node_states.splitlines() if line.strip())
    facts = "; ".join(f"{name}: {text}" for name, text in report.facts.items())
    return (f" Node states: {states}." if states else "") + (f" On the nodes: {facts}." if facts else "")


def beside(report: JobReport, run: int | None = None) -> str:
    """Return other use of the GPUs around one run (counted from 0), or around any run.

    For one run, the text also reports that nothing was seen, or that nvidia-smi failed (NOT_KNOWN).
    """
    observations = report.beside if run is None else report.beside[run : run + 2]
    if not observations:
        return ""
    lines = dict.fromkeys(
        line.strip() for observation in observations for line in observation.splitlines() if line.strip()
    )
    seen = [line for line in lines if not line.endswith((NOTHING, NOT_KNOWN))]
    if seen:
        return f" Other use of the GPUs: {'; '.join(seen[:_TAIL_LINES])}."
    if any(line.endswith(NOT_KNOWN) for line in lines) or not all(observation.strip() for observation in observations):
        return "" if run is None else " Other use of its GPUs is unknown: nvidia-smi did not report it."
    return "" if run is None else " No other use of its GPUs was seen before or after it."


def environment_settings(log: str) -> str:
    """Return NCCL's variables that come from the job, /etc/nccl.conf, ~/.nccl.conf or an image."""
    own = {match[1] for match in _OWN.finditer(log)}
    settings = dict.fromkeys(
        f"{match[1]}={match[2][:60]}"
        for match in _SET.finditer(log)
        if not match[1].startswith(("NCCL_DEBUG", "NCCL_RAS_")) and f"{match[1]}={match[2]}" not in own
    )
    by_image = dict.fromkeys(match[1][:80] for match in _BY_IMAGE.finditer(log))
    image = f" The image sets {', '.join(list(by_image)[:_TAIL_LINES])}." if by_image else ""
    sources = "the job's environment, its image, /etc/nccl.conf or ~/.nccl.conf"
    return (
        f" NCCL has settings from {sources}: {', '.join(list(settings)[:_TAIL_LINES])}.{image}" if settings else image
    )


def percents(value: float, limit: float) -> tuple[str, str]:
    """Return two different fractions as percentages, with as many digits as tell them apart."""
    digits = next((digits for digits in range(6) if f"{value:.{digits}%}" != f"{limit:.{digits}%}"), 6)
    return f"{value:.{digits}%}", f"{limit:.{digits}%}"


def odd_run(runs: Sequence[float], median: float) -> tuple[int, str]:
    """Return the run that is farthest from the median, counted from 0, and words that name it."""
    odd = max(range(len(runs)), key=lambda run: abs(runs[run] - median))
    return odd, f"run {odd + 1} is the {'slow' if runs[odd] < median else 'fast'} one"


def without(report: JobReport) -> str:
    """Return which nodes took part and which did not; empty if all did."""
    busy = [name for name in report.left_out if name not in report.absent]
    parts = []
    if report.left_out:
        parts.append(f" between {', '.join(report.nodes)} only")
    if busy:
        parts.append(f" because other jobs were on {', '.join(busy)}")
    if report.absent:
        parts.append(f" without {', '.join(f'{name} ({why})' for name, why in report.absent.items())}")
    return ",".join(parts)
