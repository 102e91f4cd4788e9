"""The groups of a site: nodes that share a network, as the head node records them when it proves a node's networks.

A node is in one group for each of its interfaces, and in one for each kind of RDMA port. A job uses the best group of
either type. A proof, a transfer of 1 MiB each way, asks only a few nodes, however many there are. The records are in
the node's folder (slurm/folders.py) and go with it.
"""

import contextlib
import ipaddress
import json
import time
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any

from components.node import files
from components.node.locks import Lock
from components.roles.network.fabric.networks import (
    INFINIBAND_LINK,
    LINKS,
    FabricError,
    Thing,
    by_number,
    label,
    pair_ports,
)
from components.roles.network.fabric.proof import SilentError, prove
from components.roles.slurm.slurm.folders import NODES

# The network of an RDMA group, which has none.
NO_NETWORK = "-"
_LOCK_SECONDS = 60  # the lock covers reading and writing a few files


def lock() -> Lock:
    """Take the lock of all records. Raises Failure."""
    return Lock("fabric", seconds=_LOCK_SECONDS)


def load(node: str) -> Thing | None:
    """Return a node's record; None if it has no readable one."""
    return _record(files.read(f"{NODES}/{node}/fabric.json") or "")


def load_all() -> list[Thing]:
    """Return all readable records."""
    return [record for text in files.read_in_folders(NODES, "fabric.json").values() if (record := _record(text))]


def _record(text: str) -> Thing | None:
    try:
        record = json.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def other_records(mine: Thing) -> list[Thing]:
    """Return the other nodes of its site with the same setting, the oldest first."""
    keys = ("site", "setting")
    same = [each for each in load_all() if each["node"] != mine["node"] and all(each[key] == mine[key] for key in keys)]
    return sorted(same, key=lambda record: (record["since"], record["node"]))


def save(record: Thing) -> None:
    """Write a node's record, unless the node has left and its folder is gone."""
    folder = f"{NODES}/{record['node']}"
    if files.is_folder(folder):
        files.write(f"{folder}/fabric.json", json.dumps(record, sort_keys=True))
        files.write(f"{folder}/fabric", "\n".join(lines(record)))


def remove(node: str) -> None:
    """Remove a node's record."""
    for name in ("fabric.json", "fabric"):
        files.remove(f"{NODES}/{node}/{name}")


def lines(record: Thing) -> list[str]:
    """Return a node's networks as comments of topology.conf, which Slurm distributes and task-prolog reads.

    `# fabric NODE RANK GROUP INTERFACE NETWORK RDMA`: RDMA is `-` for an IP group, NETWORK is `-` for an RDMA group.
    """
    return [
        " ".join(["# fabric", record["node"], str(group["rank"]), name, group["interface"], group["network"],
                  ",".join(group["rdma"]) or "-"])
        for name, group in sorted(record["groups"].items())
    ]  # fmt: skip


# Limits of neighbours to ask, and of silent neighbours before the proof stops.
MOST_ASKED, MOST_SILENT = 4, 3
# Time limit in seconds of one retry run; the remaining nodes follow in the next run.
AGAIN_SECONDS = 120.0
# Keys of a record that are not facts of the node.
_RECORD_KEYS = ("since", "groups", "unproven", "asked")


def rank(mine: Thing, theirs: Thing) -> int:
    """Return the rank of a network: RDMA first, then speed, then networks without the default route."""
    default_route = mine["default_route"] or theirs["default_route"]
    speed = int(min(mine["speed"], theirs["speed"]))
    return 10**9 * bool(mine["rdma"] and theirs["rdma"]) + 10 * speed + (not default_route)


def network_of(interface: Thing) -> str:
    """Return the network for Open MPI, or the interface's name if each node has another network."""
    network = ipaddress.IPv4Interface(interface["address"]).network
    return str(network) if network.prefixlen <= 30 else str(interface["name"])


def group_of(record: Thing, interface: str) -> str | None:
    """Return the group of a node's interface."""
    return next((name for name, group in record["groups"].items() if group["interface"] == interface), None)


def is_rdma(part: Thing) -> bool:
    """Return whether a group is of RDMA ports, and not of an IP network."""
    return bool(part["network"] == NO_NETWORK)


def kinds_of_rdma(record: Thing) -> set[str]:
    """Return the names that RDMA groups use instead of an interface, for the kinds of port of a node."""
    return {f"rdma:{link}" for link in LINKS if any(port.get("link") == link for port in record["rdma"])}


def neighbours(mine: Thing, others: Sequence[Thing]) -> Generator[Thing, bool, None]:
    """Yield nodes to prove the fabric with: as few as cover every group and every interface without a group.

    Among equal nodes, take the one with more RDMA ports, because a proof needs both ends. The caller sends whether the
    last node answered.
    """
    links = kinds_of_rdma(mine)

    def covers(record: Thing) -> set[str]:
        names = [interface["name"] for interface in record["interfaces"]]
        ungrouped = ["an ungrouped interface"] if any(group_of(record, name) is None for name in names) else []
        ungrouped += [link for link in links & kinds_of_rdma(record) if group_of(record, link) is None]
        return {
            *ungrouped,
            *(name for name, part in record["groups"].items() if not is_rdma(part) or part["interface"] in links),
        }

    remaining = sorted(others, key=lambda record: -len(record["rdma"]))
    covered: set[str] = set()
    while remaining:
        best = max(remaining, key=lambda record: len(covers(record) - covered))
        if not covers(best) - covered:
            return
        remaining.remove(best)
        # After a silent node, other nodes of its groups follow.
        if (yield best):
            covered |= covers(best)


def shared(carried: Sequence[tuple[Thing, Thing]], rdma: Sequence[tuple[Thing, Thing]]) -> list[tuple[Thing, Thing]]:
    """Return the networks that two nodes share, as pairs of their entries in a group, the best first."""
    parts = []
    for pair in carried:
        entries = [{"interface": interface["name"], "network": network_of(interface)} for interface in pair]
        parts.append([{**entry, "rank": rank(*pair), "rdma": []} for entry in entries])
    for position, link in enumerate(reversed(LINKS), start=1):
        if pairs := [pair for pair in rdma if pair[0]["link"] == link]:
            entry = {"interface": f"rdma:{link}", "network": NO_NETWORK, "rank": position}
            parts.append([{**entry, "rdma": [label(port) for port in ports]} for ports in zip(*pairs, strict=True)])
    return sorted(((mine, theirs) for mine, theirs in parts), key=lambda part: -part[0]["rank"])


def join_groups(mine: Thing, theirs: Thing, parts: Sequence[tuple[Thing, Thing]]) -> None:
    """Add both nodes to the groups of their shared networks; an interface, or a kind of RDMA, is in one group."""
    for my_part, their_part in parts:
        # The time distinguishes it from an older group, if the node has left and joined again.
        new = f"{mine['site']}/{theirs['node']}/{their_part['interface']}/{int(theirs['since'] * 1000)}"
        name = group_of(theirs, their_part["interface"]) or new
        if name in mine["groups"] or group_of(mine, my_part["interface"]) is not None:
            continue
        group = theirs["groups"].setdefault(name, their_part)
        # Add ports that were down or had no counterpart in an earlier proof.
        group["rdma"] = sorted({*group["rdma"], *their_part["rdma"]}, key=by_number)
        mine["groups"][name] = {**my_part, "rank": group["rank"], "rdma": sorted(my_part["rdma"], key=by_number)}


def prove_node(node: Mapping[str, Any]) -> Thing:
    """Prove a node's networks and record them; return the result, with `error` if a named interface carries no data.

    node   node, site, setting, address (tailnet), interfaces, rdma
    """
    with lock():
        files.make_folder(f"{NODES}/{node['node']}")
        old_record = load(node["node"])
        unchanged = old_record is not None and all(old_record.get(key) == value for key, value in node.items())
        mine: Thing = {**node, "since": old_record["since"] if old_record else time.time()}
        mine["groups"] = old_record["groups"] if old_record and unchanged else {}
        mine["unproven"] = bool(old_record and unchanged and old_record.get("unproven"))
        mine["asked"] = time.time()
        save(mine)
        others = other_records(mine)
    old_groups = set(mine["groups"])
    partners: dict[str, tuple[str, str]] = {}
    tried: list[str] = []
    silent: list[str] = []
    without_infiniband: set[str] = set()  # nodes to which InfiniBand carried no data
    candidates = neighbours(mine, others)
    neighbour = next(candidates, None)
    while neighbour and len(tried) < MOST_ASKED and len(silent) < MOST_SILENT:
        name = neighbour["node"]
        try:
            carried, rdma = prove(mine, neighbour)
        except SilentError as error:
            silent.append(str(error))
        else:
            with lock():
                # Load again: another proof may have changed the records. The first new proof replaces old groups.
                mine, theirs = load(mine["node"]) or mine, load(name) or neighbour
                if not tried:
                    mine["groups"] = {group: part for group, part in mine["groups"].items() if group not in old_groups}
                earlier = set(mine["groups"])
                join_groups(mine, theirs, shared(carried, rdma))
                save(theirs)
                save(mine)
            tried.append(name)
            ports = pair_ports(mine["rdma"], theirs["rdma"])
            if not rdma and any(port["link"] == INFINIBAND_LINK for port, _ in ports):
                without_infiniband.add(name)
            partners |= {group: (name, theirs["groups"][group]["interface"]) for group in set(mine["groups"]) - earlier}
        try:
            neighbour = candidates.send(name in tried)
        except StopIteration:
            break
    with lock():
        # For prove_again: no node answered, so nothing is proven.
        mine = load(mine["node"]) or mine
        mine["unproven"] = not mine["groups"] and not tried and bool(silent)
        save(mine)
    answer = _result(mine, partners, tried, silent, without_infiniband)
    if answer["error"]:
        # The step fails and the stack's state does not change, so restore the record too.
        with lock():
            if old_record:
                save({**old_record, "asked": mine["asked"]})
            else:
                remove(mine["node"])
    return answer


def prove_again() -> Thing:
    """Retry proofs that failed because no node answered; return the names of `proven` and `left` nodes.

    The nodes with the oldest attempt come first, until the time limit.
    """
    begin = time.monotonic()
    answer: Thing = {"proven": [], "left": []}
    unproven = [record for record in load_all() if record.get("unproven")]
    for record in sorted(unproven, key=lambda record: record.get("asked", 0.0)):
        result = None
        if time.monotonic() - begin < AGAIN_SECONDS and files.is_folder(f"{NODES}/{record['node']}"):
            # A node that does not answer must not delay the others.
            with contextlib.suppress(FabricError):
                result = prove_node({key: value for key, value in record.items() if key not in _RECORD_KEYS})
        answer["proven" if result and (result["interfaces"] or result["rdma"]) else "left"].append(record["node"])
    return answer


def _result(
    record: Thing,
    partners: Mapping[str, tuple[str, str]],
    tried: Sequence[str],
    silent: Sequence[str],
    without_infiniband: Collection[str],
) -> Thing:
    """Return the result of a proof for the program and the log, the best network first."""
    ordered = sorted(record["groups"].items(), key=lambda item: -item[1]["rank"])
    best = [(name, group) for name, group in ordered if not is_rdma(group)]
    rdma: list[str] = next((group["rdma"] for _, group in ordered if is_rdma(group)), [])
    names = ", ".join(f"{entry['name']} ({entry['address']})" for entry in record["interfaces"]) or "no interface"
    note = error = ""
    if not best and tried:
        failure = f"{names} of {record['node']} carried no 1 MiB to {' or '.join(tried)} of site {record['site']}"
        if record["setting"] != "auto":
            error = failure
        elif not rdma:
            note = f"{failure}: its jobs stay on the tailnet"
    elif not best and silent:
        note = (
            f"the fabric of {record['node']} could not be proven when it joined, its jobs stay on the tailnet until it "
            f"is; the head node tries again every 5 minutes, and `grep '^# fabric {record['node']} ' "
            f"/etc/slurm/topology.conf` there shows the proven networks; neighbours did not answer: {', '.join(silent)}"
        )
    if without_infiniband and not rdma and not error:
        sentence = (
            f"InfiniBand of {record['node']} carried nothing to {' or '.join(sorted(without_infiniband))}, "
            "so its jobs do not use it: run `ibv_rc_pingpong` (package ibverbs-utils) between the two, and check the "
            "subnet manager's partitions"
        )
        note = f"{note}; {sentence}" if note else sentence
    return {
        "interfaces": [group["interface"] for _, group in best],
        "rdma": rdma,
        # The neighbours in these proofs, each with its interface.
        "with": [partners[name] for name, _ in best if name in partners],
        "note": note,
        "error": error,
    }
