"""The program of the training benchmark: images a second of one fixed vision model, data parallel over all ranks.

tailrack:validation.training runs it, one process a GPU, or one a node on CPUs. Needs Python 3.10 and PyTorch 2. What it
trains never changes within a VERSION: figures of one version are comparable.

The model is a ResNet-18 on images made on the device, so that neither disks nor the decoding of pictures are measured:
on GPUs at its own size with bfloat16 where that is sensible, on CPUs a narrow one on small images.

arguments   untimed steps before all, and timed steps of each run; then `fsdp` for FSDP in the place of DDP, which
            wants GPUs and is not what is measured
prints      lines that components/validation/training_verdict.py reads; by the first rank alone
"""

import itertools
import json
import math
import os
import sys
import time
from dataclasses import asdict, dataclass

import torch
import torch.distributed as dist
from ranks import Place, begin
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VERSION = 1
RUNS = 3
CLASSES = 1000


@dataclass(frozen=True)
class Shape:
    """What is trained: width of the first stage, pixels of an image's side, and images a rank and step."""

    width: int
    pixels: int
    batch: int
    precision: str


ON_GPUS = Shape(width=64, pixels=224, batch=256, precision="bf16")
ON_CPUS = Shape(width=16, pixels=32, batch=32, precision="fp32")


class Block(nn.Module):
    """Two convolutions of 3 x 3 beside a way around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip
        self.around: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.around = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images of (n, before, h, w) to (n, after, h / stride, w / stride)."""
        return nn.functional.relu(self.body(images) + self.around(images), inplace=True)


def network(width: int) -> nn.Sequential:
    """A ResNet-18, of images of (n, 3, h, w) to CLASSES; its own width is 64."""
    blocks = list[nn.Module]()
    before = width
    for stage in range(4):
        after = width * 2**stage
        blocks += [Block(before, after, 1 if stage == 0 else 2), Block(after, after, 1)]
        before = after
    return nn.Sequential(
        nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
        *blocks,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES),
    )  # fmt: skip


def replicated(plain: nn.Sequential, place: Place) -> nn.Module:
    """The model as each rank has all of it: DDP."""
    return DistributedDataParallel(plain, device_ids=[place.device.index] if place.device.type == "cuda" else None)


def sharded(plain: nn.Sequential, place: Place) -> nn.Module:
    """The model as each rank has a part of it: FSDP, a unit a block."""
    # Not of every PyTorch 2 that DDP is measured with.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    # FSDP takes no weights of another order.
    plain = plain.to(memory_format=torch.contiguous_format)
    mesh = init_device_mesh(place.device.type, (place.ranks,))
    for block in plain:
        if isinstance(block, Block):
            fully_shard(block, mesh=mesh)
    return fully_shard(plain, mesh=mesh)


def whole(weights: torch.Tensor) -> torch.Tensor:
    """All of a parameter, of which this rank may have a part."""
    return weights.full_tensor() if hasattr(weights, "full_tensor") else weights


class Benchmark:
    """The model, its optimizer, and one batch of made images that every step sees."""

    def __init__(self, place: Place, parallel: str) -> None:
        self.place = place
        self.on_gpus = place.device.type == "cuda"
        self.shape = ON_GPUS if self.on_gpus else ON_CPUS
        torch.manual_seed(1)
        plain = network(self.shape.width).to(place.device, memory_format=torch.channels_last)
        self.model = sharded(plain, place) if parallel == "fsdp" else replicated(plain, place)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        torch.manual_seed(2 + place.rank)
        images = torch.randn(self.shape.batch, 3, self.shape.pixels, self.shape.pixels, device=place.device)
        self.images = images.contiguous(memory_format=torch.channels_last)
        self.labels = torch.randint(CLASSES, (self.shape.batch,), device=place.device)
        self.loss = torch.zeros((), device=place.device)

    def learn(self) -> None:
        """One step."""
        mixed = self.shape.precision == "bf16"
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.place.device.type, dtype=torch.bfloat16, enabled=mixed):
            self.loss = nn.functional.cross_entropy(self.model(self.images), self.labels)
        self.loss.backward()
        self.optimizer.step()

    def run(self, steps: int) -> list[float]:
        """Seconds of each of so many steps."""
        dist.barrier()
        if not self.on_gpus:
            ends = [time.perf_counter()]
            for _ in range(steps):
                self.learn()
                ends.append(time.perf_counter())
            return [end - start for start, end in itertools.pairwise(ends)]
        # The GPU's own clock: to wait for it after each step would be measured too.
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
        marks[0].record()
        for mark in marks[1:]:
            self.learn()
            mark.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) / 1000 for start, end in itertools.pairwise(marks)]

    def alike(self) -> bool:
        """Whether all ranks have the same model, as they must after every step."""
        with torch.no_grad():
            total = torch.stack([whole(weights).double().abs().sum() for weights in self.model.parameters()]).sum()
        found = [torch.zeros_like(total) for _ in range(self.place.ranks)]
        dist.all_gather(found, total)
        return all(math.isclose(float(each), float(total), rel_tol=1e-9) for each in found)


def say(place: Place, word: str, told: object) -> None:
    """Print one line, once a job."""
    if place.rank == 0:
        print(f"tailrack-training {word} {json.dumps(told)}", flush=True)


def main(warmup: int, steps: int, parallel: str = "ddp") -> int:
    """Measure; what fails ends the program with PyTorch's own words."""
    place = begin()
    benchmark = Benchmark(place, parallel)
    device = torch.cuda.get_device_name(place.device) if benchmark.on_gpus else "CPU"
    own = (os.environ.get("SLURMD_NODENAME") or os.uname().nodename, device)
    members = [own] * place.ranks
    dist.all_gather_object(members, own)
    about = {"version": VERSION, "ranks": place.ranks, "hosts": [host for host, _ in members]}
    devices = sorted({name for _, name in members})
    about |= {"devices": devices, "on_gpus": benchmark.on_gpus, "torch": torch.__version__, "runs": RUNS}
    say(place, "begin", {**about, **asdict(benchmark.shape)})
    benchmark.run(warmup)
    for number in range(1, RUNS + 1):
        seconds = benchmark.run(steps)
        loss, alike = float(benchmark.loss.detach()), benchmark.alike()
        told = {"run": number, "seconds": [round(each, 6) for each in seconds], "alike": alike}
        say(place, "run", {**told, "loss": loss if math.isfinite(loss) else None})
    say(place, "end", {"runs": RUNS})
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
