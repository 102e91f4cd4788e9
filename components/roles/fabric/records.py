"""The head node's records of its nodes' fabric, and the part of them that Slurm distributes to all nodes."""

import contextlib
import fcntl
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from components.roles.fabric.networks import FabricError, Thing

LOCK_SECONDS = 60.0  # the lock covers reading and writing a few files
# The network of an RDMA group, which has none.
NO_NETWORK = "-"


def take(file: TextIO, deadline: float) -> None:
    """Lock a file; raise FabricError if another process still holds the lock at the deadline."""
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                message = (
                    f"another process has held {file.name} for {LOCK_SECONDS:g} s; see fuser -v, then run up again"
                )
                raise FabricError(message) from None
        time.sleep(0.05)


class Records:
    """The records of all nodes: <node>/fabric.json, and <node>/fabric for Slurm."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        # In a folder that only root can open: any process that can open a file can lock it.
        folder = self.folder.parent / "lock"
        folder.mkdir(mode=0o700, exist_ok=True)
        with (folder / "fabric").open("w") as file:
            take(file, time.monotonic() + LOCK_SECONDS)
            yield

    def load(self, node: str) -> Thing | None:
        """Return a node's record; None if it has no readable one."""
        try:
            record = json.loads((self.folder / node / "fabric.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) else None

    def others(self, mine: Thing) -> list[Thing]:
        """Return the other nodes of its site with the same setting, the oldest first."""
        names = [path.parent.name for path in self.folder.glob("*/fabric.json")]
        records = [record for name in names if name != mine["node"] and (record := self.load(name))]
        same = [record for record in records if all(record[key] == mine[key] for key in ("site", "setting"))]
        return sorted(same, key=lambda record: (record["since"], record["node"]))

    def put_back(self, node: str, old_record: Thing | None) -> None:
        """Restore a node's old record, or remove it."""
        if old_record:
            self.save(old_record)
            return
        for name in ("fabric.json", "fabric"):
            (self.folder / node / name).unlink(missing_ok=True)

    def save(self, record: Thing) -> None:
        """Write a node's record, unless the node has left and its folder is gone."""
        folder = self.folder / record["node"]
        if not folder.is_dir():
            return
        write(folder / "fabric.json", json.dumps(record, sort_keys=True))
        write(folder / "fabric", "".join(f"{line}\n" for line in lines(record)))


def write(path: Path, text: str) -> None:
    """Write a file so that no reader sees an incomplete one."""
    fresh = path.with_name(f".{path.name}.fresh")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def lines(record: Thing) -> list[str]:
    """Return a node's networks as comments of topology.conf, which Slurm distributes and task-prolog reads.

    `# fabric NODE RANK GROUP INTERFACE NETWORK RDMA`: RDMA is `-` for an IP group, NETWORK is `-` for an RDMA group.
    """
    return [
        " ".join(["# fabric", record["node"], str(group["rank"]), name, group["interface"], group["network"],
                  ",".join(group["rdma"]) or "-"])
        for name, group in sorted(record["groups"].items())
    ]  # fmt: skip
