"""The head node's part: a program that lists the sources and plans the nodes' copies (`data-head`).

tailrack-data-head                  as the timer does
tailrack-data-head check [NAME]     list all sources again, or one, with the next run
"""

import json
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from components.node import files, run
from components.node.failure import run_program
from components.node.locks import Lock
from components.node.log import printable
from components.node.waiting import now, sleep, within
from components.roles.network.names.host import MEMBERS
from components.roles.slurm.slurm.folders import NODES
from components.roles.storage.datasets import model
from components.roles.storage.datasets.model import FETCHED, HEAD, PLAN, SETTINGS, Member, PlannedSet, Progress
from components.roles.storage.datasets.serve import prepare, pull, serve
from components.roles.storage.datasets.sources import Source, keep_listed

# Copies of the nodes' states, and when each node answered last.
STATES, _SEEN = f"{model.STATE}/nodes", f"{model.STATE}/seen.json"
_AT_ONCE = 16
# Seconds: between passes while something is missing; for one run; after which a silent node is replaced as fetcher.
_PAUSE, _RUN_SECONDS, _ALIVE_SECONDS = 3, 600, 60
# Nodes to read in a second, so that a thousand of them do not keep the head node busy.
_NODES_PER_SECOND = 20


def main(arguments: Sequence[str]) -> int:
    """Run a command and return the exit status."""
    match [*arguments]:
        case []:
            return run_program("", plan)
        case ["check", *names]:
            return run_program("", partial(check, names))
    sys.stderr.write(f"{__doc__}")
    return 2


def plan() -> None:
    """Run passes until all nodes have all, for ten minutes at most; the timer starts the next run."""
    with Lock("data-head", seconds=0):
        end = now() + _RUN_SECONDS
        while one_pass() and now() < end:
            sleep(_pause(len(members())))


def check(names: Sequence[str]) -> None:
    """List sources again with the next run, by default all."""
    for name in names or [path.removesuffix(".json") for path in files.names_in(FETCHED)]:
        files.write(f"{FETCHED}/{name}.again", "")
    run.run("systemctl", "start", "--no-block", HEAD)


def _pause(nodes: int) -> float:
    return max(_PAUSE, nodes / _NODES_PER_SECOND)


def one_pass() -> bool:
    """Do all once, and return whether a node lacks something that it may get soon."""
    settings = json.loads(files.read(SETTINGS) or "{}")
    if not settings:
        return False
    prepare()
    sources = [Source(**row, secret_key=settings["keys"].get(row["name"], "")) for row in settings["sets"]]
    serve("head", {"plan": PLAN, **{f"source-{one.name}": one.source for one in sources if one.kind == "share"}})
    results = {source.name: keep_listed(source, settings["check_seconds"], settings["head"]) for source in sources}
    last = model.read_plan(files.read(f"{PLAN}/{model.PLAN_FILE}") or "")
    before = {one.name: one for one in last.sets} if last else {}
    nodes = members()
    statuses, alive = collect(nodes)
    sets = []
    for source in sources:
        name, result = source.name, results[source.name]
        now_listed = (result.version, result.bytes, result.count, result.error)
        wanted = PlannedSet(name, source.kind, source.folder, source.sites, *now_listed)
        sets.append(planned(wanted, before.get(name), nodes, statuses, alive))
    plan = model.Plan(settings["rate"], settings["reserve"], settings["head"], sets, nodes)
    files.write(f"{PLAN}/{model.PLAN_FILE}", json.dumps(asdict(plan)), 0o640, "root", model.ACCOUNT)
    # Remove lists of earlier versions and of data sets that the config does not have any more.
    lists = {model.list_name(one.name, one.version) for one in sets}
    _keep(PLAN, {model.PLAN_FILE, *lists, *(f"remote.{one.name}" for one in sets)})
    _keep(FETCHED, {f"{one.name}.{ending}" for one in sets for ending in ("json", "again")})
    _report(plan, {source.name: source.shown for source in sources}, statuses, alive)
    here = {one.name: {name for name in alive if one.wanted_at(nodes[name].site)} for one in sets}
    return any(one.version and here[one.name] - {*one.complete} for one in sets)


def _keep(folder: str, wanted: Collection[str]) -> None:
    for name in files.names_in(folder):
        if name not in wanted:
            files.remove(f"{folder}/{name}")


def planned(
    wanted: PlannedSet,
    before: PlannedSet | None,
    nodes: Mapping[str, Member],
    statuses: Mapping[str, Mapping[str, Progress]],
    alive: Collection[str],
) -> PlannedSet:
    """Return a data set with the node of each site that fetches it, and the nodes that others can copy it from.

    before     the data set in the last plan
    statuses   each node's data sets, as it last reported them
    alive      nodes that answered lately
    """
    members = [name for name, member in sorted(nodes.items()) if wanted.wanted_at(member.site) and name in alive]
    rows = {name: statuses.get(name, {}).get(wanted.name) for name in members}
    present = {name: row for name, row in rows.items() if row and row.version == wanted.version}
    done = {name: row.sums for name, row in present.items() if row.state == model.COMPLETE}
    sums = before.sums if before and before.version == wanted.version else ""
    sums = sums or next(iter(done.values()), "")
    fetchers = {}
    for site in sorted({member.site for member in nodes.values() if wanted.wanted_at(member.site)}):
        here = [name for name in members if nodes[name].site == site]
        last = before.fetchers.get(site, "") if before else ""
        if last in here or (not here and last in nodes and nodes[last].site == site):
            fetchers[site] = last
        elif here:
            # A node that has begun loses the least.
            fetchers[site] = max(here, key=lambda name: name in present and present[name].state != model.WAITS)
    return replace(wanted, sums=sums, fetchers=fetchers, complete=[name for name in done if done[name] == sums])


def members() -> dict[str, Member]:
    """Return the nodes that run jobs, with their addresses."""
    addresses = files.read_in_folders(MEMBERS, "address")
    return {
        name: Member(texts["site"].strip(), addresses[name].strip(), _fabric(texts.get("fabric.json", "")))
        for name, texts in files.read_parts(NODES, ["site", "fabric.json"]).items()
        if "site" in texts and name in addresses
    }


def _fabric(text: str) -> list[list[Any]]:
    """Return group, rank and address for each proven IP network of a node."""
    if not text:
        return []
    record = json.loads(text)
    addresses = {row["name"]: row["address"].partition("/")[0] for row in record["interfaces"]}
    groups = record["groups"].items()
    return [
        [name, part["rank"], addresses[part["interface"]]] for name, part in groups if part["interface"] in addresses
    ]


def collect(nodes: Mapping[str, Member]) -> tuple[dict[str, dict[str, Progress]], set[str]]:
    """Read the nodes' states. Return them by node, and the nodes that answered lately."""
    from concurrent.futures import ThreadPoolExecutor

    files.make_folder(STATES, 0o700)
    for name in set(files.names_in(STATES)) - nodes.keys():
        files.remove_folder(f"{STATES}/{name}")

    def answers(name: str) -> bool:
        return pull(nodes[name].address, "state", f"{STATES}/{name}", only=model.STATUS_FILE).ok

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answered = [name for name, ok in zip(nodes, pool.map(answers, nodes), strict=True) if ok]
    seen: dict[str, float] = {}
    with suppress(ValueError):
        seen = json.loads(files.read(_SEEN) or "{}")
    seen = {name: at for name, at in seen.items() if name in nodes} | dict.fromkeys(answered, time.time())
    files.write(_SEEN, json.dumps(seen), 0o600)
    texts = {name: files.read(f"{STATES}/{name}/{model.STATUS_FILE}") or "" for name in nodes}
    limit = max(_ALIVE_SECONDS, 4 * _pause(len(nodes)))
    alive = {name for name, at in seen.items() if within(limit, at, time.time())}
    return {name: model.read_status(text) for name, text in texts.items()}, alive


def _report(
    plan: model.Plan, shown: Mapping[str, str], statuses: Mapping[str, Mapping[str, Progress]], alive: Collection[str]
) -> None:
    """Write the report that `tailrack data` shows. Everyone can read it, so it has no secrets."""
    rows = []
    for one in plan.sets:
        nodes = []
        for name, member in sorted(plan.nodes.items()):
            if one.wanted_at(member.site):
                row = statuses.get(name, {}).get(one.name)
                progress = row if row and row.version == one.version else Progress(one.version, model.WAITS)
                nodes.append({"node": name, "site": member.site, "answers": name in alive, **asdict(progress)})
        keys = {"name": one.name, "source": printable(shown[one.name], 300), "folder": one.folder}
        more = {"version": one.version, "bytes": one.bytes, "files": one.count, "error": one.error, "nodes": nodes}
        rows.append({**keys, **more})
    files.write(model.REPORT, json.dumps({"time": int(time.time()), "sets": rows}), 0o644)
