"""Make a small data set of images as WebDataset shards: tar files whose members `KEY.npy` and `KEY.cls` are one sample.

`python3 make_shards.py FOLDER [--shards 8] [--samples 128]`: ten classes, each a wave of its own direction under noise.
"""

import argparse
import io
import tarfile
from pathlib import Path

import numpy as np

CLASSES, SIDE = 10, 16


def image(label: int, random: np.random.Generator) -> np.ndarray:
    """float32 of (1, SIDE, SIDE): a wave in the direction of its class, moved and noisy."""
    rows, columns = np.mgrid[:SIDE, :SIDE]
    angle = np.pi * label / CLASSES
    wave = np.sin((rows * np.sin(angle) + columns * np.cos(angle)) * 0.9 + random.uniform(0, 2 * np.pi))
    return (wave + random.normal(0, 0.7, (SIDE, SIDE))).astype(np.float32)[None]


def write_shard(path: Path, samples: int, seed: int) -> None:
    """Write one shard, which is there as a whole or not at all."""
    random = np.random.default_rng(seed)
    new = path.with_suffix(".new")
    with tarfile.open(new, "w") as shard:
        for number in range(samples):
            label = int(random.integers(CLASSES))
            data = io.BytesIO()
            np.save(data, image(label, random))
            for ending, content in (("npy", data.getvalue()), ("cls", str(label).encode())):
                member = tarfile.TarInfo(f"{seed:04d}{number:06d}.{ending}")
                member.size = len(content)
                shard.addfile(member, io.BytesIO(content))
    new.rename(path)


def main() -> None:
    """Write what is not there yet."""
    parser = argparse.ArgumentParser(description="Make a small data set of images as WebDataset shards.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--samples", type=int, default=128, help="images a shard")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for number in range(given.shards):
        path = given.folder / f"shard-{number:06d}.tar"
        if not path.exists():
            write_shard(path, given.samples, number)
    print(f"{given.shards} shards of {given.samples} images in {given.folder}")


if __name__ == "__main__":
    main()
