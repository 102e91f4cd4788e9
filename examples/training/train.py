"""Train a small vision model on shards, with PyTorch's DDP or FSDP: `--help` has its options.

What ends it does not matter: started again in the same folder it goes on at the last checkpoint, with the data that
come next, and ends with the loss of a run that nothing ended.
"""

import argparse
import signal
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from checkpoints import CheckpointError, load, newest, save
from ranks import Place, begin
from shards import DataError, batches, shards_of
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from tracking import Tracking

# The exit status of a run that saved at SIGTERM: it is not complete.
SAVED = 128 + signal.SIGTERM
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train a small vision model on shards.")
    parser.add_argument("data", type=Path, help="folder of shard-*.tar (make_shards.py)")
    parser.add_argument("folder", type=Path, help="where its checkpoints are; on the share")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32, help="images a rank and step")
    parser.add_argument("--save-every", type=int, default=10, metavar="STEPS", help="within an epoch")
    parser.add_argument(
        "--save-minutes", type=float, default=5.0, metavar="MINUTES", help="at the latest after so long"
    )
    parser.add_argument("--parallel", choices=("ddp", "fsdp"), default="ddp")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def network() -> nn.Sequential:
    """Images of (n, 1, 16, 16) to ten classes."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 16, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


class Run:
    """A model, its optimizer and how far they have come."""

    def __init__(self, given: argparse.Namespace, place: Place) -> None:
        self.given, self.place, self.epoch, self.step, self.loss = given, place, 0, 0, 0.0
        torch.manual_seed(given.seed)
        plain = network().to(place.device)
        if given.parallel == "fsdp":
            mesh = init_device_mesh(place.device.type, (place.ranks,))
            for layer in plain:
                if any(True for _ in layer.parameters()):
                    fully_shard(layer, mesh=mesh)
            self.model: nn.Module = fully_shard(plain, mesh=mesh)
        else:
            on = [place.device.index] if place.device.type == "cuda" else None
            self.model = DistributedDataParallel(plain, device_ids=on)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.saved_at, self.save_due, self.reported = time.monotonic(), False, -1
        # Whether this rank got SIGTERM, and whether any did.
        self.asked_to_end, self.ends = False, False
        self.tracking = Tracking(given.folder, {**vars(given), "ranks": place.ranks}, place.rank)

    def go_on(self) -> None:
        """Take up the last checkpoint, where there is one."""
        path = newest(self.given.folder)
        if path is None:
            return
        kept = load(path, self.place.ranks)
        set_state_dict(
            self.model, self.optimizer,
            model_state_dict=kept["model"], optim_state_dict=kept["optimizer"], options=WHOLE,
        )  # fmt: skip
        self.epoch, self.step = kept["epoch"], kept["step"]
        self.reported = self._number
        self.say(f"goes on from {path}: epoch {self.epoch}, step {self.step}")

    def keep(self) -> None:
        """Write a checkpoint: all ranks give their part, the first one writes."""
        model, optimizer = get_state_dict(self.model, self.optimizer, options=WHOLE)
        if self.place.rank == 0:
            where = {"epoch": self.epoch, "step": self.step, "ranks": self.place.ranks}
            save(self.given.folder, self._number, {"model": model, "optimizer": optimizer, **where})
        # No rank runs ahead of a checkpoint that could not be written.
        dist.barrier()
        self.saved_at = time.monotonic()

    @property
    def _number(self) -> int:
        return self.epoch * 1_000_000 + self.step

    def ask_to_end(self, *_: object) -> None:
        """Save and end after the current step: the machine goes away, or the time limit is near."""
        self.asked_to_end = True

    def train(self) -> None:
        """Train to the last epoch, or until a rank gets SIGTERM."""
        given, place = self.given, self.place
        took = list[float]()
        while self.epoch < given.epochs:
            own = [path.name for path in shards_of(given.data, place.rank, place.ranks, self.epoch, given.seed)]
            print(f"rank {place.rank} epoch {self.epoch} reads {' '.join(own)}", flush=True)
            share = batches(given.data, place.rank, place.ranks, self.epoch, given.seed, given.batch)
            for number, (images, labels) in enumerate(share):
                if number < self.step:
                    continue
                begun = time.perf_counter()
                self.loss = self.learn(images.to(place.device), labels.to(place.device))
                took.append(time.perf_counter() - begun)
                self.step = number + 1
                self.tracking.loss(self._number, self.loss)
                if self.step % given.save_every == 0 or self.save_due or self.ends:
                    self.report()
                    self.keep()
                if self.ends:
                    self.say(f"saved at SIGTERM: epoch {self.epoch}, step {self.step}")
                    self.tracking.end(newest(given.folder))
                    return
            # An epoch may be shorter than --save-every: with many ranks each has few batches.
            self.report()
            self.epoch, self.step = self.epoch + 1, 0
            self.keep()
        if took:
            each = statistics.median(took[len(took) // 2 :])
            rate = given.batch * place.ranks / each
            self.say(f"images per second: {rate:.0f} on {place.ranks} ranks")
            self.say(f"final loss {self.loss:.6f}")
            self.tracking.send(images_per_second=(self._number, rate))
        self.tracking.end(newest(given.folder))

    def learn(self, images: torch.Tensor, labels: torch.Tensor) -> float:
        """One step; the loss as the mean over all ranks."""
        mixed = self.given.precision == "bf16"
        with torch.autocast(self.place.device.type, dtype=torch.bfloat16, enabled=mixed):
            loss = nn.functional.cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        # All ranks must save at the same step, so the clock of any one of them decides for all.
        late = time.monotonic() - self.saved_at > 60 * self.given.save_minutes
        # All must end at the same step too: SIGTERM reaches ranks at different moments.
        mean, self.save_due, self.ends = self._over_ranks(loss, late, self.asked_to_end)
        return mean

    def _over_ranks(self, loss: torch.Tensor, late: bool, ends: bool) -> tuple[float, bool, bool]:
        """Return the mean loss over all ranks, and whether `late` and `ends` hold on any of them."""
        flags = torch.tensor([float(late), float(ends)], device=self.place.device)
        values = torch.cat((loss.detach().float().reshape(1), flags))
        dist.all_reduce(values)
        total, any_late, any_ends = values.tolist()
        return total / self.place.ranks, any_late > 0, any_ends > 0

    def report(self) -> None:
        """Print the loss and send it to MLflow, unless this step was reported already."""
        if self.reported != self._number:
            self.say(f"epoch {self.epoch} step {self.step} loss {self.loss:.6f}")
            self.tracking.send()
            self.reported = self._number

    def say(self, words: str) -> None:
        """Print once a job."""
        if self.place.rank == 0:
            print(words, flush=True)


def main() -> int:
    """Train; 1 with one line for data or checkpoints that cannot be used, SAVED after SIGTERM."""
    given = arguments()
    place = begin()
    if given.parallel == "fsdp" and place.device.type == "cpu":
        print("train: --parallel fsdp wants GPUs, as PyTorch has it for those alone: use ddp", file=sys.stderr)
        return 1
    try:
        run = Run(given, place)
        signal.signal(signal.SIGTERM, run.ask_to_end)
        run.go_on()
        run.train()
    except (DataError, CheckpointError) as error:
        print(f"train: rank {place.rank}: {error}", file=sys.stderr, flush=True)
        return 1
    dist.destroy_process_group()
    return SAVED if run.ends else 0


if __name__ == "__main__":
    sys.exit(main())
