"""Known causes of a job that failed, found in what it printed: the first error, and not the last farewell. Pure.

The phrases are those of CUDA's errors (cudaGetErrorString), NCCL's warnings, Open MPI, the dynamic linker and Slurm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

WIDTH = 200


@dataclass(frozen=True)
class Cause:
    """A cause in words for people, what helps, and the line that shows it."""

    what: str
    remedy: str
    line: str

    def __str__(self) -> str:
        return f"{self.what} ('{self.line}'). Next: {self.remedy}"


_SMI = "see 'nvidia-smi' on the node"
# Pattern, cause, remedy; of one line the first that fits.
_KNOWN = tuple(
    (re.compile(pattern, re.IGNORECASE), what, remedy)
    for pattern, what, remedy in (
        (r"oom[-_ ]kill|out-of-memory handler|\bOUT_OF_MEMORY\b|Exceeded job memory limit",
         "the node's memory, or the job's share of it, was used up", "ask for more memory, or start fewer ranks"),
        (r"(?:creating|error|failed).*shared memory segment|/dev/shm/\S* .*(?:fail|error|No space)",
         "the shared memory of the node is full", "remove what is left in it on the node ('ls -l /dev/shm')"),
        (r"out of memory|cudaErrorMemoryAllocation", "a GPU had no memory left",
         f"{_SMI} what else is on its GPUs, and end it; or make validation.nccl.max_bytes smaller"),
        (r"no kernel image is available|sm_\d+ is not compatible with", "the program has no code for these GPUs",
         "build it for their compute capability (NVCC_GENCODE), or take an image that has it"),
        (r"driver version is insufficient|forward compatibility was attempted|unsupported toolchain",
         "the driver is older than the CUDA that the program was built with",
         "update the node's driver, or take a program or image of an older CUDA"),
        (r"system not yet initialized", "the NVSwitches are not set up: CUDA starts on no GPU",
         "'systemctl status nvidia-fabricmanager' on the node; its package must be of the driver's version"),
        (r"uncorrectable ECC error|ECC error encountered", "a GPU's memory is broken",
         "drain the node, and see 'nvidia-smi -q -d ECC' and 'dmesg | grep -i xid' there"),
        (r"is/are busy or unavailable|CUDA-capable device.*busy", "another process has the GPU alone, or it hangs",
         f"{_SMI} which process, and that the compute mode is Default"),
        (r"no CUDA-capable device is detected|No CUDA GPUs are available", "the ranks see no GPU",
         "see CUDA_VISIBLE_DEVICES in the job's environment and its image, and 'nvidia-smi -L' in a job"),
        (r"GPU is lost|fallen off the bus", "a GPU is lost", "restart the node, and see 'dmesg | grep -i xid' there"),
        (r"illegal memory access|unspecified launch failure|misaligned address",
         "a kernel failed on a GPU", "see 'dmesg | grep -i xid' on the node, and try another release of NCCL"),
        (r"Duplicate GPU detected", "two ranks have the same GPU",
         "leave --gpu-bind and --gpus-per-task out of the options of srun"),
        (r"no socket interface found|no usable interface", "NCCL finds no interface of the name that it was given",
         "see NCCL_SOCKET_IFNAME in the job's environment and /etc/nccl.conf"),
        (r"ibv_(?:reg_mr|create_qp|create_cq)\w*.*(?:Cannot allocate memory|failed with error 12\b)",
         "RDMA may not pin as much memory as it needs", "see 'ulimit -l' in a job: it has to be unlimited"),
        (r"Got completion .*status=(?:12|5|10)\b|IBV_WC_RETRY_EXC_ERR|transport retry counter exceeded",
         "an InfiniBand or RoCE port does not reach another",
         "see 'ibstat' and the counters of the ports on both nodes, and for RoCE NCCL_IB_GID_INDEX"),
        (r"(?:connect|Call to connect).* failed.*(?:No route to host|Connection refused|timed out)"
         r"|socket\w*: .*(?:No route to host|Connection refused)",
         "one node cannot open a connection to another",
         "see the firewall of both, and the interface that NCCL_SOCKET_IFNAME names"),
        (r"Couldn't find the specified plugin name for mpi/|cannot find.*mpi plugin|MPI plugin .* not found",
         "Slurm has no plugin for the MPI that was asked for", "'srun --mpi=list' on the node says what there is"),
        (r"OMPI was not built with SLURM's PMI|not built with SLURM support",
         "this Open MPI cannot be started by srun", "install an Open MPI with PMIx, or take an image that has one"),
        (r"error while loading shared libraries|cannot open shared object file", "a library of the program is missing",
         "install it on the node, or set validation.nccl.program to a program that brings it"),
        (r"version `(?:GLIBC|GLIBCXX|CXXABI)_\S+' not found", "the program was built on a newer system",
         "build it on the oldest system of the nodes"),
        (r"No space left on device", "a disk is full", "'df -h' on the node"),
    )
)  # fmt: skip
# What looks like an error: quoted where no cause is known.
_ERROR = re.compile(
    r"\b(?:error|failed|failure|fatal|cannot|can't|denied|no such|not found|unable|invalid|abort(?:ed)?|NCCL WARN)\b",
    re.IGNORECASE,
)
# Farewells of what was ended because another rank failed, and lines that follow from the first.
_FAREWELL = re.compile(
    r"^srun: (?:error: \S+: tasks? [\d,-]+: |Terminating|Job step|Force)|^slurmstepd: error: \*\*\*|CANCELLED AT"
    r"|Test failure \S+:\d+$|NCCL INFO|Unable to find reachable pairing|^srun: (?:job|warning)"
)
_EXITED = re.compile(r"^srun: error: (\S{1,64}): tasks? ([\d,-]{1,40}): Exited with exit code (\d{1,3})$", re.ASCII)
# 128 and the number of the signal by which Slurm ends the other ranks.
_ENDED_BY_SLURM = (137, 143)


def _lines(texts: Iterable[str]) -> Iterable[str]:
    for text in texts:
        for line in text.splitlines():
            if line.strip(" #\t") and not _FAREWELL.search(line):
                yield line.strip()


def cause_of(*texts: str) -> Cause | None:
    """The first known cause in what a job printed; None where none is known. The texts in their order."""
    for line in _lines(texts):
        for pattern, what, remedy in _KNOWN:
            if pattern.search(line):
                return Cause(what, remedy, line[:WIDTH])
    return None


def first_error(*texts: str) -> str:
    """The first line that looks like an error; empty where none does."""
    return next((line[:WIDTH] for line in _lines(texts) if _ERROR.search(line)), "")


def first_exit(output: str) -> tuple[str, int] | None:
    """The rank that failed by itself, and its exit code: those that Slurm ended for it have another one."""
    for line in output.splitlines():
        if (found := _EXITED.match(line.strip())) and int(found[3]) not in (0, *_ENDED_BY_SLURM):
            return f"task {found[2]} of {found[1]}", int(found[3])
    return None
