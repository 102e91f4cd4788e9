"""Bus bandwidth of torch's all_reduce over all tasks of a job: NCCL on GPUs, Gloo on CPUs. Sizes in bytes."""

import os
import statistics
import time

import torch
import torch.distributed as dist

rank, ranks, local = (int(os.environ[name]) for name in ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"))
# Debian's PyTorch has none, and says so with an error.
os.environ.setdefault("USE_LIBUV", "0")
on_gpus = torch.cuda.is_available()
if on_gpus:
    torch.cuda.set_device(local % torch.cuda.device_count())
dist.init_process_group("nccl" if on_gpus else "gloo", rank=rank, world_size=ranks)


def seconds(data: torch.Tensor) -> float:
    """How long one all_reduce takes."""
    dist.barrier()
    begin = time.perf_counter()
    dist.all_reduce(data)
    if on_gpus:
        torch.cuda.synchronize()
    return time.perf_counter() - begin


for size in (1 << power for power in range(20, 31 if on_gpus else 25, 2)):
    data = torch.ones(size // 4, device="cuda" if on_gpus else "cpu")
    for _ in range(3):
        seconds(data)
    data.fill_(1)
    took = [seconds(data)]
    if not float(data[0]) == ranks == float(data[-1]):
        raise SystemExit(f"rank {rank}: wrong data")
    took += [seconds(data) for _ in range(9)]
    # As nccl-tests has it: what each rank's link carries.
    busbw = size / statistics.median(took) * 2 * (ranks - 1) / ranks / 1e9
    if rank == 0:
        print(f"{size:>11} bytes  {busbw:8.2f} GB/s bus bandwidth over {ranks} ranks", flush=True)
dist.destroy_process_group()
