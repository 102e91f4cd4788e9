"""The sentences of a result: what kept a measurement from its nodes, how a job ended, and what was found on the way."""

from collections.abc import Mapping

from components.validation.model import JobReport

# testResult_t of nccl-tests v2.19, src/common.h; before, wrong results exited with 1.
_EXIT_MEANINGS: Mapping[str, Mapping[int, str]] = {
    "nccl-tests": {2: "a CUDA error", 3: "an NCCL error", 4: "a time-out", 7: "wrong results or too slow"},
    "mpi-cpu": {7: "wrong results"},
    "tcp-cpu": {3: "the ranks did not find, or lost, each other", 7: "wrong results"},
}
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
        meaning = _EXIT_MEANINGS.get(backend, {}).get(report.exit_code)
        words.append(f"exit code {report.exit_code}" + (f" ({meaning})" if meaning else ""))
    if report.signal:
        words.append(f"signal {report.signal}")
    return ", ".join(words)


def context(report: JobReport) -> str:
    """What a person needs to see why: findings on the nodes and the end of the output."""
    lines = [line.strip()[:_TAIL_WIDTH] for line in report.output.splitlines() if line.strip(" #\t")]
    tail = " | ".join(lines[-_TAIL_LINES:])
    return findings(report) + (f" Last lines of output: {tail}" if tail else " The job wrote no output.")


def findings(report: JobReport) -> str:
    """What Slurm says of the nodes, and what was found on them."""
    states = " | ".join(line.strip() for line in report.node_states.splitlines() if line.strip())
    facts = "; ".join(f"{name}: {text}" for name, text in report.facts.items())
    return (f" Node states: {states}." if states else "") + (f" Found on the nodes: {facts}." if facts else "")


def beside(report: JobReport, run: int | None = None) -> str:
    """What else was on the GPUs: around one run, by its number from 0, or around any. Where nothing was seen, that."""
    looks = report.beside if run is None else report.beside[run : run + 2]
    if not looks:
        return ""
    seen = dict.fromkeys(line.strip() for look in looks for line in look.splitlines() if line.strip())
    if not seen:
        return "" if run is None else " Nothing else was seen on its GPUs before or after it."
    return f" On the GPUs besides: {'; '.join(list(seen)[:_TAIL_LINES])}."


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
