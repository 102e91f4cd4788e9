"""The groups of a site: nodes that share a network, as the head node notes them when a node's networks are proven.

Nothing is asked of more than a few nodes, however many there are.
"""

import contextlib
import fcntl
import ipaddress
import json
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from components.roles.fabric.networks import FabricError, Thing
from components.roles.fabric.proof import SilentError, proven

# Neighbours that are asked, and how many may be silent before the rest is taken for silent too.
MOST_ASKED, MOST_SILENT = 4, 3
LOCK_SECONDS = 60.0  # it is held for the time of reading and writing a few files
# Seconds for all that is proven once more at a time; the rest has its turn the next time.
AGAIN_SECONDS = 120.0
# What a record has beyond what is known of the node.
_OF_RECORD = ("since", "groups", "unproven", "asked")


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
    """What the head node keeps of its members' fabric: <node>/fabric.json, and for Slurm <node>/fabric."""

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
    """A node's networks as comments of topology.conf, which Slurm brings to every node (read by task-prolog)."""
    return [
        " ".join(["# fabric", record["node"], str(group["rank"]), name, group["interface"], group["network"],
                  ",".join(group["rdma"]) or "-"])
        for name, group in sorted(record["groups"].items())
    ]  # fmt: skip


def rank(mine: Thing, theirs: Thing) -> int:
    """How good a network is: RDMA before all, then speed; of two alike, the one that is not the way out."""
    way_out = mine["default_route"] or theirs["default_route"]
    speed = int(min(mine["speed"], theirs["speed"]))
    return 10**9 * bool(mine["rdma"] and theirs["rdma"]) + 10 * speed + (not way_out)


def network_of(interface: Thing) -> str:
    """The network as Open MPI takes it, alike on all its nodes; the interface's name where each has one of its own."""
    network = ipaddress.IPv4Interface(interface["address"]).network
    return str(network) if network.prefixlen <= 30 else str(interface["name"])


def group_of(record: Thing, interface: str) -> str | None:
    """The group that an interface of a node is in."""
    return next((name for name, group in record["groups"].items() if group["interface"] == interface), None)


def neighbours(others: Sequence[Thing]) -> Generator[Thing, bool, None]:
    """Nodes to prove the fabric with: as few as cover every group, and an interface that is in no group yet.

    It is sent whether the last one answered.
    """

    def covers(record: Thing) -> set[str]:
        loose = any(group_of(record, each["name"]) is None for each in record["interfaces"])
        return {*record["groups"], *(["a loose interface"] if loose else [])}

    left = list(others)
    covered: set[str] = set()
    while left:
        best = max(left, key=lambda record: len(covers(record) - covered))
        if not covers(best) - covered:
            return
        left.remove(best)
        # Where it was silent, others of its groups are asked.
        if (yield best):
            covered |= covers(best)


def join_groups(mine: Thing, theirs: Thing, carried: Sequence[tuple[Thing, Thing]], rdma: Sequence[str]) -> None:
    """Put both into the groups of the networks that they share; the best pairs first, an interface is in one group."""
    for own, other in sorted(carried, key=lambda pair: -rank(*pair)):
        # The time keeps it apart from a group of before, if the node has left and come back.
        new = f"{mine['site']}/{theirs['node']}/{other['name']}/{int(theirs['since'] * 1000)}"
        name = group_of(theirs, other["name"]) or new
        if name in mine["groups"] or group_of(mine, own["name"]) is not None:
            continue
        there = theirs["groups"].setdefault(name, {"rank": rank(own, other), **_part(other, rdma)})
        there["rdma"] = there["rdma"] or list(rdma)
        mine["groups"][name] = {"rank": there["rank"], **_part(own, rdma)}


def _part(interface: Thing, rdma: Sequence[str]) -> Thing:
    return {"interface": interface["name"], "network": network_of(interface), "rdma": list(rdma)}


def place(records: Records, node: Mapping[str, Any]) -> Thing:
    """Prove a node's networks and note them; what came of it, with `error` where a named interface carries nothing.

    node   node, site, setting, address (tailnet), interfaces, rdma
    """
    with records.locked():
        (records.folder / node["node"]).mkdir(exist_ok=True)
        before = records.load(node["node"])
        same = before is not None and all(before.get(key) == value for key, value in node.items())
        mine: Thing = {**node, "since": before["since"] if before else time.time()}
        mine["groups"] = before["groups"] if before and same else {}
        mine["unproven"], mine["asked"] = bool(before and same and before.get("unproven")), time.time()
        records.save(mine)
        others = records.others(mine)
    old = set(mine["groups"])
    partners: dict[str, tuple[str, str]] = {}
    tried: list[str] = []
    silent: list[str] = []
    asking = neighbours(others)
    neighbour = next(asking, None)
    while neighbour and len(tried) < MOST_ASKED and len(silent) < MOST_SILENT:
        name = neighbour["node"]
        try:
            carried, rdma = proven(mine, neighbour)
        except SilentError as error:
            silent.append(str(error))
        else:
            with records.locked():
                # Others may have put either into a group meanwhile; what was proven before counts no more.
                mine, theirs = records.load(mine["node"]) or mine, records.load(name) or neighbour
                if not tried:
                    mine["groups"] = {group: part for group, part in mine["groups"].items() if group not in old}
                known = set(mine["groups"])
                join_groups(mine, theirs, carried, rdma)
                records.save(theirs)
                records.save(mine)
            tried.append(name)
            partners |= {group: (name, theirs["groups"][group]["interface"]) for group in set(mine["groups"]) - known}
        try:
            neighbour = asking.send(name in tried)
        except StopIteration:
            break
    with records.locked():
        # For `again`: whose networks nobody was there to prove with.
        mine = records.load(mine["node"]) or mine
        mine["unproven"] = not mine["groups"] and not tried and bool(silent)
        records.save(mine)
    answer = _told(mine, partners, tried, silent)
    if answer["error"]:
        # The step fails, and the stack's state stays what it was: so does this.
        with records.locked():
            records.put_back(mine["node"], before and {**before, "asked": mine["asked"]})
    return answer


def again(records: Records) -> Thing:
    """Prove once more the networks of nodes that nobody answered for; `proven` and `left` are their names.

    Those asked longest ago come first, for as long as there is time.
    """
    begin = time.monotonic()
    answer: Thing = {"proven": [], "left": []}
    found = [record for path in records.folder.glob("*/fabric.json") if (record := records.load(path.parent.name))]
    for record in sorted((each for each in found if each.get("unproven")), key=lambda each: each.get("asked", 0.0)):
        told = None
        if time.monotonic() - begin < AGAIN_SECONDS and (records.folder / record["node"]).is_dir():
            # One that does not answer itself holds nobody up.
            with contextlib.suppress(FabricError):
                told = place(records, {key: value for key, value in record.items() if key not in _OF_RECORD})
        answer["proven" if told and told["interfaces"] else "left"].append(record["node"])
    return answer


def _told(record: Thing, partners: Mapping[str, tuple[str, str]], tried: Sequence[str], silent: Sequence[str]) -> Thing:
    """What a person and the program are told of a node's fabric; the best network first."""
    best = sorted(record["groups"].items(), key=lambda item: -item[1]["rank"])
    names = ", ".join(f"{each['name']} ({each['address']})" for each in record["interfaces"]) or "no interface"
    note = error = ""
    if not best and tried:
        what = f"{names} of {record['node']} carried no 1 MiB to {' or '.join(tried)} of site {record['site']}"
        if record["setting"] == "auto":
            note = f"{what}: its jobs stay on the tailnet"
        else:
            error = what
    elif not best and silent:
        note = (
            f"the fabric of {record['node']} could not be proven when it joined, its jobs stay on the tailnet until it "
            f"is; the head node tries again every 5 minutes, and `grep '^# fabric {record['node']} ' "
            f"/etc/slurm/topology.conf` there shows what is proven: {', '.join(silent)}"
        )
    return {
        "interfaces": [group["interface"] for _, group in best],
        "rdma": best[0][1]["rdma"] if best else [],
        # Neighbours that it was proven with, each with the interface there.
        "with": [partners[name] for name, _ in best if name in partners],
        "note": note,
        "error": error,
    }
