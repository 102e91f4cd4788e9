"""Sentences for the reason of a result: busy nodes, the end of a job, its known causes, and observations. Pure.

causes.csv has the patterns of causes, from CUDA's errors (cudaGetErrorString), NCCL's warnings, Open MPI, the dynamic
linker and Slurm. For each line the first match counts.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pkgutil import get_data
from statistics import median_low

from components.validation.model import JobReport, table
from components.validation.nccl_tests import loaded_nccl
from components.validation.preflight.foreign import NOT_KNOWN, NOTHING

WIDTH = 200
# Lines that look like an error, quoted if no cause is known.
_ERROR = re.compile(
    r"\b(?:error|failed|failure|fatal|cannot|can't|denied|no such|not found|unable|invalid|abort(?:ed)?|NCCL WARN)\b",
    re.IGNORECASE,
)
# Messages of ranks that ended because another rank failed, and lines that follow from the first error.
_CONSEQUENCE = re.compile(
    r"^srun: (?:error: \S+: tasks? [\d,-]+: |Terminating|Job step|Force)|^slurmstepd: error: \*\*\*|CANCELLED AT"
    r"|Test failure \S+:\d+$|NCCL INFO|Unable to find reachable pairing|^srun: (?:job|warning)"
)
_EXITED = re.compile(r"^srun: error: (\S{1,64}): tasks? ([\d,-]{1,40}): Exited with exit code (\d{1,3})$", re.ASCII)
# 128 plus the signal with which Slurm ends the other ranks.
_ENDED_BY_SLURM = (137, 143)


def _lines(texts: Iterable[str]) -> Iterable[str]:
    for text in texts:
        for line in text.splitlines():
            if line.strip(" #\t") and not _CONSEQUENCE.search(line):
                yield line.strip()


@cache
def _causes() -> Sequence[tuple[re.Pattern[str], str, str]]:
    return [
        (re.compile(row["pattern"], re.IGNORECASE), row["cause"], row["remedy"])
        for row in table(get_data("components.validation", "causes.csv"))
    ]


def cause_of(*texts: str) -> str:
    """Return the first known cause in a job's outputs, in their order, with a remedy; empty if none is known."""
    for line in _lines(texts):
        for pattern, cause, remedy in _causes():
            if pattern.search(line):
                return f"{cause} ('{line[:WIDTH]}'). Next: {remedy}"
    return ""


def first_error(*texts: str) -> str:
    return next((line[:WIDTH] for line in _lines(texts) if _ERROR.search(line)), "")


def first_exit(output: str) -> tuple[str, int] | None:
    """Return the rank that failed first and its exit code: ranks that Slurm ended have a different one."""
    for line in output.splitlines():
        if (match := _EXITED.match(line.strip())) and int(match[3]) not in (0, *_ENDED_BY_SLURM):
            return f"task {match[2]} of {match[1]}", int(match[3])
    return None


# testResult_t of nccl-tests v2.19, src/common.h; earlier releases exit with 1 on wrong results.
_EXIT_MEANINGS: Mapping[str, Mapping[int, str]] = {
    "nccl-tests": {2: "a CUDA error", 3: "an NCCL error", 4: "a timeout", 7: "wrong results or too slow"},
    "mpi-cpu": {7: "wrong results"},
    "tcp-cpu": {3: "the ranks could not connect, or lost a connection", 7: "wrong results"},
}
_BY_IMAGE = re.compile(r"^# tailrack image sets (NCCL_[ -~]{1,200})$", re.MULTILINE)
_SET = re.compile(r"NCCL INFO (NCCL_[A-Z0-9_]{1,60}) set by environment to ([!-~]{1,200}?)\.?$", re.MULTILINE)
# Settings that tailrack makes itself (measurement_jobs/rank.sh): they are never the cause.
_OWN = re.compile(r"^# tailrack sets (NCCL_[ -~]{1,200})$", re.MULTILINE)
_WARNING = re.compile(r" NCCL WARN (.+)$", re.MULTILINE)
_TAIL_LINES, _MOST_WARNINGS = 8, 3


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
    lines = [line.strip()[:WIDTH] for line in report.output.splitlines() if line.strip(" #\t")]
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
    warnings = dict.fromkeys(match[1].strip()[:WIDTH] for match in _WARNING.finditer(text))
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


def unsteady(runs: Sequence[float], limit: float, listed: str) -> tuple[int, str]:
    """Return the run farthest from the median, counted from 0, and a sentence that names it; empty if all are alike.

    limit    largest (largest - smallest) / median
    listed   the runs with their unit
    """
    median = median_low(runs) if runs else 0
    relative = (max(runs) - min(runs)) / median if median else 0
    if relative <= limit:
        return 0, ""
    odd = max(range(len(runs)), key=lambda run: abs(runs[run] - median))
    differ, most = percents(relative, limit)
    name = f"run {odd + 1} is the {'slow' if runs[odd] < median else 'fast'} one"
    return odd, f"its runs gave {listed} and differ by {differ}, more than {most}; {name}."


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
