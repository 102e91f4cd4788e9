"""Which of the job's tasks this is: told by Slurm, by Pyxis in a container, or by torchrun."""

import os
import subprocess
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Place:
    """rank of ranks; local: its number on its node; device: where it computes."""

    rank: int
    ranks: int
    local: int
    device: torch.device


def begin() -> Place:
    """Meet the other ranks: NCCL on GPUs, Gloo on CPUs."""
    rank, ranks, local = (
        int(os.environ.get(ours) or os.environ.get(slurms) or default)
        for ours, slurms, default in (
            ("RANK", "SLURM_PROCID", "0"),
            ("WORLD_SIZE", "SLURM_NTASKS", "1"),
            ("LOCAL_RANK", "SLURM_LOCALID", "0"),
        )
    )
    # A container has no scontrol, and is told.
    if not os.environ.get("MASTER_ADDR"):
        os.environ["MASTER_ADDR"] = _first_node()
    # Other jobs on the node have other numbers. Below 61000 are ports of the cluster, which no job can open.
    os.environ.setdefault("MASTER_PORT", str(61_000 + int(os.environ.get("SLURM_JOB_ID", "0")) % 4_500))
    # Debian's PyTorch has none, and says so with an error.
    os.environ.setdefault("USE_LIBUV", "0")
    on_gpus = torch.cuda.is_available()
    device = torch.device("cuda", local % torch.cuda.device_count()) if on_gpus else torch.device("cpu")
    if on_gpus:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpus else "gloo", rank=rank, world_size=ranks, timeout=timedelta(minutes=5))
    return Place(rank, ranks, local, device)


def _first_node() -> str:
    names = os.environ.get("SLURM_JOB_NODELIST")
    if not names:
        return "127.0.0.1"
    listed = subprocess.run(["scontrol", "show", "hostnames", names], check=True, capture_output=True, text=True)
    return listed.stdout.split()[0]
