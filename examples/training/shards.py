"""Read WebDataset shards: each rank has shards of its own, in an order that seed and epoch alone decide."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch


class DataError(Exception):
    """The data cannot be used; one line that says what is wrong and what to do."""


def shards_of(folder: Path, rank: int, ranks: int, epoch: int, seed: int) -> list[Path]:
    """A rank's shards of an epoch: all ranks have as many, so that none waits for the others. Raises DataError."""
    found = sorted(folder.glob("shard-*.tar"))
    if not found:
        raise DataError(f"{folder} has no shard-*.tar: python3 make_shards.py {folder}")
    if len(found) % ranks:
        raise DataError(f"{len(found)} shards in {folder} are not shared evenly by {ranks} ranks: make a multiple")
    order = np.random.default_rng([seed, epoch]).permutation(len(found))
    return [found[number] for number in order[rank::ranks]]


def read_shard(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Images, float32 of (n, 1, side, side), and labels, int64 of (n). Raises DataError for a shard that is damaged."""
    images, labels = dict[str, np.ndarray](), dict[str, int]()
    try:
        with tarfile.open(path) as shard:
            for member in shard:
                key, _, ending = member.name.partition(".")
                file = shard.extractfile(member)
                content = file.read() if file else b""
                if len(content) != member.size:
                    raise ValueError(f"{member.name} is cut off")
                if ending == "npy":
                    images[key] = np.load(io.BytesIO(content), allow_pickle=False)
                elif ending == "cls":
                    labels[key] = int(content)
        if not images or images.keys() != labels.keys():
            raise ValueError("not every image has a label")
        keys = sorted(images)
        return torch.from_numpy(np.stack([images[key] for key in keys])), torch.tensor([labels[key] for key in keys])
    except (tarfile.TarError, ValueError, EOFError, OSError) as error:
        raise DataError(f"shard {path} is damaged ({error}): take it away and make it again") from None


def batches(
    folder: Path, rank: int, ranks: int, epoch: int, seed: int, size: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield (images, labels) of a rank's share of an epoch, each of `size`; what is left over is left out."""
    for path in shards_of(folder, rank, ranks, epoch, seed):
        images, labels = read_shard(path)
        for begin in range(0, len(labels) - size + 1, size):
            yield images[begin : begin + size], labels[begin : begin + size]
