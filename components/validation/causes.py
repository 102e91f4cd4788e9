"""Known causes of a failed job, from the first error in its output. Pure.

The patterns are from CUDA's errors (cudaGetErrorString), NCCL's warnings, Open MPI, the dynamic linker and Slurm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

WIDTH = 200


@dataclass(frozen=True)
class Cause:
    cause: str
    remedy: str
    line: str

    def __str__(self) -> str:
        return f"{self.cause} ('{self.line}'). Next: {self.remedy}"


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


def cause_of(*texts: str) -> Cause | None:
    """Return the first known cause in a job's outputs, in their order; None if none is known."""
    for line in _lines(texts):
        for pattern, cause, remedy in _KNOWN:
            if pattern.search(line):
                return Cause(cause, remedy, line[:WIDTH])
    return None


def first_error(*texts: str) -> str:
    return next((line[:WIDTH] for line in _lines(texts) if _ERROR.search(line)), "")


def first_exit(output: str) -> tuple[str, int] | None:
    """Return the rank that failed first and its exit code: ranks that Slurm ended have a different one."""
    for line in output.splitlines():
        if (match := _EXITED.match(line.strip())) and int(match[3]) not in (0, *_ENDED_BY_SLURM):
            return f"task {match[2]} of {match[1]}", int(match[3])
    return None
