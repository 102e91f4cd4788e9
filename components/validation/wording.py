"""The sentences of a result: what kept a measurement from its nodes, how a job ended, and what was found on the way."""

import re
from collections.abc import Mapping, Sequence

from components.validation.causes import cause_of, first_error, first_exit
from components.validation.model import JobReport
from components.validation.preflight.foreign import NOT_KNOWN, NOTHING

# testResult_t of nccl-tests v2.19, src/common.h; before, wrong results exited with 1.
_EXIT_MEANINGS: Mapping[str, Mapping[int, str]] = {
    "nccl-tests": {2: "a CUDA error", 3: "an NCCL error", 4: "a time-out", 7: "wrong results or too slow"},
    "mpi-cpu": {7: "wrong results"},
    "tcp-cpu": {3: "the ranks did not find, or lost, each other", 7: "wrong results"},
}
_BY_IMAGE = re.compile(r"^# tailrack image sets (NCCL_[ -~]{1,200})$", re.MULTILINE)
_SET = re.compile(r"NCCL INFO (NCCL_[A-Z0-9_]{1,60}) set by environment to ([!-~]{1,200}?)\.?$", re.MULTILINE)
_TAIL_LINES, _TAIL_WIDTH = 8, 200


def age(seconds: int) -> str:
    """A length of time in its largest unit."""
    for unit, name in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= unit:
            return f"{seconds // unit} {name}{'s' * (seconds >= 2 * unit)}"
    return f"{seconds} second{'s' * (seconds != 1)}"


def ending(backend: str, report: JobReport) -> str:
    """How a job ended that did not end well."""
    words = [f"state {report.state}"]
    if report.exit_code is not None:
        words.append(_exit(backend, report.exit_code))
    if report.signal:
        words.append(f"signal {report.signal}")
    first = first_exit(report.output)
    if first is not None and first[1] != report.exit_code:
        words.append(f"after {first[0]} ended with {_exit(backend, first[1])}")
    return ", ".join(words)


def _exit(backend: str, code: int) -> str:
    meaning = _EXIT_MEANINGS.get(backend, {}).get(code)
    return f"exit code {code}" + (f" ({meaning})" if meaning else "")


def context(report: JobReport) -> str:
    """A known cause, else the first error; what was found on the nodes; the end of the output."""
    texts = (report.output, *report.repeats, report.log)
    cause, error = cause_of(*texts), first_error(*texts)
    why = f" The cause: {cause}." if cause else f" First error: {error}." if error else ""
    lines = [line.strip()[:_TAIL_WIDTH] for line in report.output.splitlines() if line.strip(" #\t")]
    tail = " | ".join(lines[-_TAIL_LINES:])
    return (
        why
        + beside(report)
        + findings(report)
        + (f" Last lines of output: {tail}" if tail else " The job wrote no output.")
    )


def findings(report: JobReport) -> str:
    """What Slurm says of the nodes, and what was found on them."""
    states = " | ".join(line.strip() for line in report.node_states.splitlines() if line.strip())
    facts = "; ".join(f"{name}: {text}" for name, text in report.facts.items())
    return (f" Node states: {states}." if states else "") + (f" Found on the nodes: {facts}." if facts else "")


def beside(report: JobReport, run: int | None = None) -> str:
    """What else was on the GPUs: around one run, by its number from 0, or around any. Where nothing was seen, that.

    Without a line of a node nobody has looked there, and with NOT_KNOWN nvidia-smi failed: nobody knows then.
    """
    looks = report.beside if run is None else report.beside[run : run + 2]
    if not looks:
        return ""
    lines = dict.fromkeys(line.strip() for look in looks for line in look.splitlines() if line.strip())
    seen = [line for line in lines if not line.endswith((NOTHING, NOT_KNOWN))]
    if seen:
        return f" On the GPUs besides: {'; '.join(seen[:_TAIL_LINES])}."
    if any(line.endswith(NOT_KNOWN) for line in lines) or not all(look.strip() for look in looks):
        return "" if run is None else " What else was on its GPUs is not known: nvidia-smi did not say."
    return "" if run is None else " Nothing else was seen on its GPUs before or after it."


def told_by_environment(log: str) -> str:
    """NCCL's variables that somebody has set: in the job, in /etc/nccl.conf or ~/.nccl.conf, or in an image."""
    found = dict.fromkeys(
        f"{match[1]}={match[2][:60]}" for match in _SET.finditer(log) if not match[1].startswith("NCCL_DEBUG")
    )
    by_image = dict.fromkeys(match[1][:80] for match in _BY_IMAGE.finditer(log))
    image = f" The image sets {', '.join(list(by_image)[:_TAIL_LINES])}." if by_image else ""
    where = "in the job's environment, its image, /etc/nccl.conf or ~/.nccl.conf"
    return f" NCCL was told {where}: {', '.join(list(found)[:_TAIL_LINES])}.{image}" if found else image


def odd_run(runs: Sequence[float], middle: float) -> tuple[int, str]:
    """Return the run that is farthest from the middle one, by its number from 0, and the words that name it."""
    odd = max(range(len(runs)), key=lambda run: abs(runs[run] - middle))
    return odd, f"run {odd + 1} is the {'slow' if runs[odd] < middle else 'fast'} one"


def without(report: JobReport) -> str:
    """Who took part and who did not; empty where everybody did."""
    busy = [name for name in report.left_out if name not in report.absent]
    words = []
    if report.left_out:
        words.append(f" between {', '.join(report.nodes)} alone")
    if busy:
        words.append(f" as other jobs were on {', '.join(busy)}")
    if report.absent:
        words.append(f" without {', '.join(f'{name} ({why})' for name, why in report.absent.items())}")
    return ",".join(words)
