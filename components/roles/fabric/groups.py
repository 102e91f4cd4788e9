"""The groups of a site: nodes that share a network, as the head node notes them when a node's networks are proven.

A node is in one group for each of its interfaces, by IP, and in one for each kind of RDMA port: jobs take the best of
either. Nothing is asked of more than a few nodes, however many there are.
"""

import contextlib
import ipaddress
import time
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any

from components.roles.fabric.networks import FabricError, Thing
from components.roles.fabric.proof import SilentError, proven
from components.roles.fabric.rails import INFINIBAND_LINK, LINKS, by_number, label, paired
from components.roles.fabric.records import NO_NETWORK, Records

# Neighbours that are asked, and how many may be silent before the rest is taken for silent too.
MOST_ASKED, MOST_SILENT = 4, 3
# Seconds for all that is proven once more at a time; the rest has its turn the next time.
AGAIN_SECONDS = 120.0
# What a record has beyond what is known of the node.
_OF_RECORD = ("since", "groups", "unproven", "asked")


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


def is_rdma(part: Thing) -> bool:
    """Whether a group is one of RDMA ports, and not of a network of IP."""
    return bool(part["network"] == NO_NETWORK)


def kinds_of_rdma(record: Thing) -> set[str]:
    """What groups of RDMA call the kinds of port that a node has, where those of IP have an interface."""
    return {f"rdma:{link}" for link in LINKS if any(port.get("link") == link for port in record["rdma"])}


def neighbours(mine: Thing, others: Sequence[Thing]) -> Generator[Thing, bool, None]:
    """Nodes to prove the fabric with: as few as cover every group, and what is in no group yet.

    Of two alike, the one with more RDMA ports: what it lacks could not be proven. It is sent whether the last one
    answered.
    """
    links = kinds_of_rdma(mine)

    def covers(record: Thing) -> set[str]:
        names = [each["name"] for each in record["interfaces"]]
        loose = ["a loose interface"] if any(group_of(record, name) is None for name in names) else []
        loose += [link for link in links & kinds_of_rdma(record) if group_of(record, link) is None]
        return {
            *loose,
            *(name for name, part in record["groups"].items() if not is_rdma(part) or part["interface"] in links),
        }

    left = sorted(others, key=lambda record: -len(record["rdma"]))
    covered: set[str] = set()
    while left:
        best = max(left, key=lambda record: len(covers(record) - covered))
        if not covers(best) - covered:
            return
        left.remove(best)
        # Where it was silent, others of its groups are asked.
        if (yield best):
            covered |= covers(best)


def shared(carried: Sequence[tuple[Thing, Thing]], rdma: Sequence[tuple[Thing, Thing]]) -> list[tuple[Thing, Thing]]:
    """What two nodes share, as the part that each has of a group; the best first."""
    parts = []
    for own, other in carried:
        named = [{"interface": each["name"], "network": network_of(each)} for each in (own, other)]
        parts.append([{**names, "rank": rank(own, other), "rdma": []} for names in named])
    for place, link in enumerate(reversed(LINKS), start=1):
        if pairs := [pair for pair in rdma if pair[0]["link"] == link]:
            alike = {"interface": f"rdma:{link}", "network": NO_NETWORK, "rank": place}
            parts.append([{**alike, "rdma": [label(port) for port in ports]} for ports in zip(*pairs, strict=True)])
    return sorted(((own, other) for own, other in parts), key=lambda part: -part[0]["rank"])


def join_groups(mine: Thing, theirs: Thing, parts: Sequence[tuple[Thing, Thing]]) -> None:
    """Put both into the groups of what they share; an interface, or a kind of RDMA, is in one group."""
    for own, other in parts:
        # The time keeps it apart from a group of before, if the node has left and come back.
        new = f"{mine['site']}/{theirs['node']}/{other['interface']}/{int(theirs['since'] * 1000)}"
        name = group_of(theirs, other["interface"]) or new
        if name in mine["groups"] or group_of(mine, own["interface"]) is not None:
            continue
        there = theirs["groups"].setdefault(name, other)
        # Ports that were down, or had no counterpart, when it was proven before.
        there["rdma"] = sorted({*there["rdma"], *other["rdma"]}, key=by_number)
        mine["groups"][name] = {**own, "rank": there["rank"], "rdma": sorted(own["rdma"], key=by_number)}


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
    deaf: set[str] = set()  # nodes to which InfiniBand carried nothing
    asking = neighbours(mine, others)
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
                join_groups(mine, theirs, shared(carried, rdma))
                records.save(theirs)
                records.save(mine)
            tried.append(name)
            if not rdma and any(port["link"] == INFINIBAND_LINK for port, _ in paired(mine["rdma"], theirs["rdma"])):
                deaf.add(name)
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
    answer = _told(mine, partners, tried, silent, deaf)
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
        answer["proven" if told and (told["interfaces"] or told["rdma"]) else "left"].append(record["node"])
    return answer


def _told(
    record: Thing,
    partners: Mapping[str, tuple[str, str]],
    tried: Sequence[str],
    silent: Sequence[str],
    deaf: Collection[str],
) -> Thing:
    """What a person and the program are told of a node's fabric; the best network first."""
    ordered = sorted(record["groups"].items(), key=lambda item: -item[1]["rank"])
    best = [(name, group) for name, group in ordered if not is_rdma(group)]
    rdma: list[str] = next((group["rdma"] for _, group in ordered if is_rdma(group)), [])
    names = ", ".join(f"{each['name']} ({each['address']})" for each in record["interfaces"]) or "no interface"
    note = error = ""
    if not best and tried:
        what = f"{names} of {record['node']} carried no 1 MiB to {' or '.join(tried)} of site {record['site']}"
        if record["setting"] != "auto":
            error = what
        elif not rdma:
            note = f"{what}: its jobs stay on the tailnet"
    elif not best and silent:
        note = (
            f"the fabric of {record['node']} could not be proven when it joined, its jobs stay on the tailnet until it "
            f"is; the head node tries again every 5 minutes, and `grep '^# fabric {record['node']} ' "
            f"/etc/slurm/topology.conf` there shows what is proven: {', '.join(silent)}"
        )
    if deaf and not rdma and not error:
        sentence = (
            f"InfiniBand of {record['node']} carried nothing to {' or '.join(sorted(deaf))}, and its jobs do without: "
            "see `ibv_rc_pingpong` (package ibverbs-utils) between the two, and the subnet manager's partitions"
        )
        note = f"{note}; {sentence}" if note else sentence
    return {
        "interfaces": [group["interface"] for _, group in best],
        "rdma": rdma,
        # Neighbours that it was proven with, each with the interface there.
        "with": [partners[name] for name, _ in best if name in partners],
        "note": note,
        "error": error,
    }
