"""Sentences for the reason of a result: busy nodes, the end of a job, its known causes, and observations. Pure.

The patterns of causes are from CUDA's errors (cudaGetErrorString), NCCL's warnings, Open MPI, the dynamic linker and
Slurm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median_low

from components.validation.model import JobReport
from components.validation.nccl_tests import loaded_nccl
from components.validation.preflight.foreign import NOT_KNOWN, NOTHING

WIDTH = 200


_SMI = "see 'nvidia-smi' on the node"
# Pattern, cause, remedy; for each line the first match counts.
_KNOWN = tuple(
    (re.compile(pattern, re.IGNORECASE), cause, remedy)
    for pattern, cause, remedy in (
        (r"oom[-_ ]kill|out-of-memory handler|\bOUT_OF_MEMORY\b|Exceeded job memory limit",
         "the node's memory, or the job's share of it, was exhausted", "request more memory, or start fewer ranks"),
        (r"(?:creating|error|failed).*shared memory segment|/dev/shm/\S* .*(?:fail|error|No space)",
         "the shared memory of the node is full", "remove leftover files in it on the node ('ls -l /dev/shm')"),
        (r"out of memory|cudaErrorMemoryAllocation", "a GPU had no memory left",
         f"{_SMI} for other processes on its GPUs, and end them; or reduce validation.nccl.max_bytes"),
        (r"no kernel image is available|sm_\d+ is not compatible with", "the program has no code for these GPUs",
         "build it for their compute capability (NVCC_GENCODE), or use an image that supports it"),
        (r"driver version is insufficient|forward compatibility was attempted|unsupported toolchain",
         "the driver is older than the CUDA that the program was built with",
         "update the node's driver, or use a program or image with an older CUDA"),
        (r"system not yet initialized", "the NVSwitches are not set up, so CUDA starts on no GPU",
         "'systemctl status nvidia-fabricmanager' on the node; its package must have the driver's version"),
        (r"uncorrectable ECC error|ECC error encountered", "a GPU's memory is broken",
         "drain the node, and see 'nvidia-smi -q -d ECC' and 'dmesg | grep -i xid' there"),
        (r"is/are busy or unavailable|CUDA-capable device.*busy",
         "another process has exclusive use of the GPU, or it hangs",
         f"{_SMI} for that process, and check that the compute mode is Default"),
        (r"no CUDA-capable device is detected|No CUDA GPUs are available", "the ranks see no GPU",
         "check CUDA_VISIBLE_DEVICES in the job's environment and its image, and 'nvidia-smi -L' in a job"),
        (r"GPU is lost|fallen off the bus", "a GPU is lost", "restart the node, and see 'dmesg | grep -i xid' there"),
        (r"illegal memory access|unspecified launch failure|misaligned address",
         "a kernel failed on a GPU", "see 'dmesg | grep -i xid' on the node, and try another release of NCCL"),
        (r"Duplicate GPU detected", "two ranks have the same GPU",
         "remove --gpu-bind and --gpus-per-task from srun's options"),
        (r"no socket interface found|no usable interface", "NCCL finds no interface with the configured name",
         "check NCCL_SOCKET_IFNAME in the job's environment and /etc/nccl.conf"),
        (r"Unrecognized (?:element|prefix) token", "NCCL does not know a value of NCCL_ALGO or NCCL_PROTO",
         "correct it in the job's environment, its image, /etc/nccl.conf or ~/.nccl.conf"),
        (r"ibv_(?:reg_mr|create_qp|create_cq)\w*.*(?:Cannot allocate memory|failed with error 12\b)",
         "RDMA cannot pin as much memory as it needs", "check 'ulimit -l' in a job: it must be unlimited"),
        (r"Got completion .*status=(?:12|5|10)\b|IBV_WC_RETRY_EXC_ERR|transport retry counter exceeded",
         "an InfiniBand or RoCE port does not reach another",
         "check 'ibstat' and the port counters on both nodes, and for RoCE NCCL_IB_GID_INDEX"),
        (r"(?:connect|Call to connect).* failed.*(?:No route to host|Connection refused|timed out)"
         r"|socket\w*: .*(?:No route to host|Connection refused)",
         "one node cannot open a connection to another",
         "check the firewalls of both nodes, and the interface in NCCL_SOCKET_IFNAME"),
        (r"Couldn't find the specified plugin name for mpi/|cannot find.*mpi plugin|MPI plugin .* not found",
         "Slurm has no plugin for the requested MPI", "'srun --mpi=list' on the node lists its plugins"),
        (r"OMPI was not built with SLURM's PMI|not built with SLURM support",
         "srun cannot start this Open MPI", "install an Open MPI with PMIx, or use an image that has one"),
        (r"error while loading shared libraries|cannot open shared object file", "a library of the program is missing",
         "install it on the node, or set validation.nccl.program to a program that includes it"),
        (r"version `(?:GLIBC|GLIBCXX|CXXABI)_\S+' not found", "the program was built on a newer system",
         "build it on the oldest system among the nodes"),
        (r"No space left on device", "a disk is full", "'df -h' on the node"),
    )
)  # fmt: skip
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


def cause_of(*texts: str) -> str:
    """Return the first known cause in a job's outputs, in their order, with a remedy; empty if none is known."""
    for line in _lines(texts):
        for pattern, cause, remedy in _KNOWN:
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
