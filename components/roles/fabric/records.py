"""What the head node keeps of its members' fabric, one file a node, and what of it Slurm brings to every node."""

import contextlib
import fcntl
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from components.roles.fabric.networks import FabricError, Thing

LOCK_SECONDS = 60.0  # it is held for the time of reading and writing a few files
# Where a part of a group has its network: RDMA has none.
NO_NETWORK = "-"


def take(file: TextIO, deadline: float) -> None:
    """Lock a file that others may have locked; FabricError where they have it still at the deadline."""
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                what = f"another process has held {file.name} for {LOCK_SECONDS:g} s (see fuser -v), then run up again"
                raise FabricError(what) from None
        time.sleep(0.05)


class Records:
    """The records of all members: <node>/fabric.json, and for Slurm <node>/fabric."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        # Where only its owner can open it: whoever can open a file can lock it.
        place = self.folder.parent / "lock"
        place.mkdir(mode=0o700, exist_ok=True)
        with (place / "fabric").open("w") as file:
            take(file, time.monotonic() + LOCK_SECONDS)
            yield

    def load(self, node: str) -> Thing | None:
        """A node's record; None where there is none that can be read."""
        try:
            record = json.loads((self.folder / node / "fabric.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) else None

    def others(self, mine: Thing) -> list[Thing]:
        """The other nodes of its site that are asked for the same, the oldest first."""
        names = [path.parent.name for path in self.folder.glob("*/fabric.json")]
        found = [record for name in names if name != mine["node"] and (record := self.load(name))]
        same = [record for record in found if all(record[key] == mine[key] for key in ("site", "setting"))]
        return sorted(same, key=lambda record: (record["since"], record["node"]))

    def put_back(self, node: str, before: Thing | None) -> None:
        """Have a node's record be what it was, or none."""
        if before:
            self.save(before)
            return
        for name in ("fabric.json", "fabric"):
            (self.folder / node / name).unlink(missing_ok=True)

    def save(self, record: Thing) -> None:
        """Note a node's record, unless the node has left meanwhile and its folder with it."""
        place = self.folder / record["node"]
        if not place.is_dir():
            return
        write(place / "fabric.json", json.dumps(record, sort_keys=True))
        write(place / "fabric", "".join(f"{line}\n" for line in lines(record)))


def write(path: Path, text: str) -> None:
    """Nobody reads half of it."""
    fresh = path.with_name(f".{path.name}.fresh")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def lines(record: Thing) -> list[str]:
    """A node's networks as comments of topology.conf, which Slurm brings to every node (read by task-prolog).

    `# fabric NODE RANK GROUP INTERFACE NETWORK RDMA`: `-` is the RDMA of a network, and the NETWORK of RDMA.
    """
    return [
        " ".join(["# fabric", record["node"], str(group["rank"]), name, group["interface"], group["network"],
                  ",".join(group["rdma"]) or "-"])
        for name, group in sorted(record["groups"].items())
    ]  # fmt: skip
