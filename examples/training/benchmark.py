"""The program of the training benchmark: images or tokens a second of a fixed model, data parallel over all ranks.

tailrack:validation.training runs it, one process a GPU, or one a node on CPUs. Needs Python 3.10 and PyTorch 2. What it
trains never changes within a VERSION: figures of one version are comparable.

The measured model is a ResNet-18 on images made on the device, so that neither disks nor the decoding of pictures are
measured: on GPUs at its own size with bfloat16 where that is sensible, on CPUs a narrow one on small images. By hand,
`resnet50` and `transformer` give the figures that others publish. All weights are random.

arguments   untimed steps before all, and timed steps of each run; then `ddp`, or `fsdp` for FSDP on GPUs; then
            `resnet18`, `resnet50` or `transformer` (a decoder of 0.6 billion weights beside its embedding)
prints      lines that components/validation/training_verdict.py reads, then the figures of the median run: images or
            tokens a second, and the share of the GPUs' peak that they are (MFU); by the first rank alone
"""

import itertools
import json
import math
import os
import statistics
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
    """What is trained: width of the first stage, pixels of an image's side, and images a rank and step.

    Of a transformer: width of a layer, tokens of a text, and texts a rank and step.
    """

    width: int
    pixels: int
    batch: int
    precision: str


ON_GPUS = Shape(width=64, pixels=224, batch=256, precision="bf16")
ON_CPUS = Shape(width=16, pixels=32, batch=32, precision="fp32")
TEXT_ON_GPUS, TEXT_ON_CPUS = Shape(2048, 2048, 8, "bf16"), Shape(64, 64, 4, "fp32")
TOKENS, LAYERS, HEAD_WIDTH = 32_000, 12, 64
# FLOP/s of dense bfloat16, by a part of the GPU's name (NVIDIA's data sheets of the SXM boards).
PEAKS = {"H100 80GB HBM3": 989e12, "H200": 989e12, "B200": 2250e12, "A100-SXM": 312e12, "L40S": 362e12}
# FLOP of a forward pass, at a width of 64 and 224 pixels; the backward pass takes twice as many.
IMAGE_FLOP = {"resnet18": 3.6e9, "resnet50": 8.2e9}


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


class Bottleneck(Block):
    """Convolutions of 1 x 1, 3 x 3 and 1 x 1 beside a way around them, four times as wide at the end."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__(before, 4 * after, stride)
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True),
            nn.Conv2d(after, 4 * after, 1, bias=False), nn.BatchNorm2d(4 * after),
        )  # fmt: skip


class Layer(nn.Module):
    """A layer of a decoder: attention to the tokens before, and two linear maps, each beside a way around it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before_attention, self.before_maps = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.maps = nn.Sequential(
            nn.Linear(width, 4 * width, bias=False), nn.GELU(), nn.Linear(4 * width, width, bias=False)
        )

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        """Texts of (n, tokens, width) to the same."""
        parts = self.queries(self.before_attention(texts)).unflatten(-1, (3, -1, HEAD_WIDTH)).transpose(1, 3)
        found = nn.functional.scaled_dot_product_attention(*parts.unbind(2), is_causal=True)
        texts = texts + self.out(found.transpose(1, 2).flatten(2))
        return texts + self.maps(self.before_maps(texts))


class Positions(nn.Module):
    """Adds what a token's place in its text means."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(tokens, width))

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        """Texts of (n, tokens, width) to the same."""
        return texts + self.positions


def decoder(shape: Shape) -> nn.Sequential:
    """A decoder, of texts of (n, tokens) to the odds of each next token."""
    return nn.Sequential(
        nn.Embedding(TOKENS, shape.width), Positions(shape.pixels, shape.width),
        *(Layer(shape.width) for _ in range(LAYERS)),
        nn.LayerNorm(shape.width), nn.Linear(shape.width, TOKENS, bias=False),
    )  # fmt: skip


def network(width: int, model: str = "resnet18") -> nn.Sequential:
    """A ResNet-18 or 50, of images of (n, 3, h, w) to CLASSES; its own width is 64."""
    kind, counts, wider = (Block, (2, 2, 2, 2), 1) if model == "resnet18" else (Bottleneck, (3, 4, 6, 3), 4)
    blocks = list[nn.Module]()
    before = width
    for stage, count in enumerate(counts):
        after = width * 2**stage
        blocks.append(kind(before, after, 1 if stage == 0 else 2))
        blocks += [kind(wider * after, after, 1) for _ in range(count - 1)]
        before = wider * after
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
        if isinstance(block, (Block, Layer)):
            fully_shard(block, mesh=mesh)
    return fully_shard(plain, mesh=mesh)


def whole(weights: torch.Tensor) -> torch.Tensor:
    """All of a parameter, of which this rank may have a part."""
    return weights.full_tensor() if hasattr(weights, "full_tensor") else weights


class Benchmark:
    """The model, its optimizer, and one batch of made images or texts that every step sees."""

    def __init__(self, place: Place, parallel: str, model: str) -> None:
        self.place = place
        self.on_gpus = place.device.type == "cuda"
        text = model == "transformer"
        self.shape = (TEXT_ON_GPUS if text else ON_GPUS) if self.on_gpus else TEXT_ON_CPUS if text else ON_CPUS
        torch.manual_seed(1)
        plain = decoder(self.shape) if text else network(self.shape.width, model)
        plain = plain.to(place.device, memory_format=torch.contiguous_format if text else torch.channels_last)
        # A token's work is that of its weights and of its attention to all others (PaLM, arXiv 2204.02311, appendix B).
        weights = sum(weights.numel() for layer in plain if isinstance(layer, Layer) for weights in layer.parameters())
        attention = 12 * LAYERS * self.shape.width * self.shape.pixels
        self.flop = 6 * (weights + TOKENS * self.shape.width) + attention if text else 3 * IMAGE_FLOP[model]
        self.items, self.unit = self.shape.batch * (self.shape.pixels if text else 1), "tokens" if text else "images"
        self.model = sharded(plain, place) if parallel == "fsdp" else replicated(plain, place)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        torch.manual_seed(2 + place.rank)
        if text:
            self.images, self.labels = torch.randint(
                TOKENS, (2, self.shape.batch, self.shape.pixels), device=place.device
            )
        else:
            images = torch.randn(self.shape.batch, 3, self.shape.pixels, self.shape.pixels, device=place.device)
            self.images = images.contiguous(memory_format=torch.channels_last)
            self.labels = torch.randint(CLASSES, (self.shape.batch,), device=place.device)
        self.loss = torch.zeros((), device=place.device)

    def learn(self) -> None:
        """One step."""
        mixed = self.shape.precision == "bf16"
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.place.device.type, dtype=torch.bfloat16, enabled=mixed):
            self.loss = nn.functional.cross_entropy(self.model(self.images).flatten(0, -2), self.labels.flatten())
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

    def figures(self, seconds: float, device: str) -> str:
        """Images or tokens a second of a step in all and of each rank, and the share of the GPU's peak."""
        rate = self.items / seconds
        peak = next((peak for name, peak in PEAKS.items() if name in device), 0) if self.on_gpus else 0
        mfu = f", MFU {rate * self.flop / peak:.1%}" if peak else ""
        return f"{rate * self.place.ranks:,.0f} {self.unit}/s, {rate:,.0f} per rank{mfu}"


def say(place: Place, word: str, told: object) -> None:
    """Print one line, once a job."""
    if place.rank == 0:
        print(f"tailrack-training {word} {json.dumps(told)}", flush=True)


def main(warmup: int, steps: int, parallel: str = "ddp", model: str = "resnet18") -> int:
    """Measure; what fails ends the program with PyTorch's own words."""
    place = begin()
    benchmark = Benchmark(place, parallel, model)
    device = torch.cuda.get_device_name(place.device) if benchmark.on_gpus else "CPU"
    own = (os.environ.get("SLURMD_NODENAME") or os.uname().nodename, device)
    members = [own] * place.ranks
    dist.all_gather_object(members, own)
    about = {"version": VERSION, "ranks": place.ranks, "hosts": [host for host, _ in members]}
    devices = sorted({name for _, name in members})
    about |= {"devices": devices, "on_gpus": benchmark.on_gpus, "torch": torch.__version__, "runs": RUNS}
    say(place, "begin", {**about, **asdict(benchmark.shape)})
    benchmark.run(warmup)
    medians = []
    for number in range(1, RUNS + 1):
        seconds = benchmark.run(steps)
        medians.append(statistics.median(seconds))
        loss, alike = float(benchmark.loss.detach()), benchmark.alike()
        told = {"run": number, "seconds": [round(each, 6) for each in seconds], "alike": alike}
        say(place, "run", {**told, "loss": loss if math.isfinite(loss) else None})
    say(place, "end", {"runs": RUNS})
    if place.rank == 0:
        print(f"{model}: {benchmark.figures(statistics.median(medians), device)}", flush=True)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
