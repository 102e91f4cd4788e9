"""The program on the head node (`data-head`): list the sources, collect the nodes' states, write plan and report.

tailrack-data-head                  as the timer does
tailrack-data-head check [NAME]     list all sources again, or one, with the next run
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from components.node import files, run
from components.node.failure import Failure
from components.node.locks import Lock
from components.node.log import note
from components.node.step.step import STATE_DIR
from components.node.text import printable
from components.node.waiting import now, sleep, within
from components.roles.datasets.catalog import Listed, Source, config_name, keep_listed
from components.roles.datasets.model import (
    Entry,
    Member,
    Plan,
    PlannedSet,
    Progress,
    files_name,
    read_entries,
    read_plan,
    read_status,
    sums_name,
    write_entries,
)
from components.roles.datasets.paths import (
    ACCOUNT,
    FETCHED,
    HEAD,
    PLAN,
    PLAN_FILE,
    REPORT,
    SETTINGS,
    STATE,
    STATUS_FILE,
)
from components.roles.datasets.planning import missing, planned
from components.roles.datasets.rsync import pull
from components.roles.datasets.serve import prepare, serve
from components.roles.names.publish import MEMBERS
from components.roles.slurm.paths import NODES

# Copies of the nodes' states.
_STATES = f"{STATE}/nodes"
_SEEN = f"{STATE}/seen.json"
_AT_ONCE = 16
# Seconds: between passes while something is missing; for one run; after which a silent node is replaced as fetcher.
_PAUSE, _RUN_SECONDS, _ALIVE_SECONDS = 3, 600, 60
# Nodes to read in a second, so that a thousand of them do not keep the head node busy.
_NODES_PER_SECOND = 20


def main(arguments: Sequence[str]) -> int:
    """Run passes until all nodes have all, for ten minutes at most; the timer starts the next run."""
    os.environ.update({"LC_ALL": "C.UTF-8", "PATH": run.PATH})
    os.umask(0o022)
    if arguments:
        if arguments[0] != "check":
            sys.stderr.write(f"{__doc__}")
            return 2
        for name in arguments[1:] or [path.removesuffix(".json") for path in files.names_in(FETCHED)]:
            files.write(f"{FETCHED}/{name}.again", "")
        run.run("systemctl", "start", "--no-block", HEAD)
        return 0
    try:
        with Lock("data-head", seconds=0):
            end = now() + _RUN_SECONDS
            while one_pass() and now() < end:
                sleep(_pause(len(last_nodes())))
    except Failure as failure:
        note(f"{failure.reason}; next: {failure.remedy or 'see above'}")
        return 1
    return 0


def _pause(nodes: int) -> float:
    return max(_PAUSE, nodes / _NODES_PER_SECOND)


def last_nodes() -> Mapping[str, Member]:
    """Return the nodes of the last plan."""
    plan = last_plan()
    return plan.nodes if plan else {}


def one_pass() -> bool:
    """Do all once, and return whether a node lacks something that it may get soon."""
    settings = json.loads(files.read(SETTINGS) or "{}")
    if not settings:
        return False
    prepare()
    sources = read_sources(settings)
    results = {source.name: keep_listed(source, settings["check_seconds"]) for source in sources}
    serve("head", {"plan": PLAN, **{f"source-{one.name}": one.source for one in sources if one.kind == "share"}})
    before = last_plan()
    nodes = members()
    statuses, alive = collect(nodes)
    sets = []
    for source in sources:
        result = results[source.name]
        old = next((one for one in before.sets if one.name == source.name), None) if before else None
        if old and old.version == result.version:
            adopt_sums(old, result.version)
        wanted = PlannedSet(
            source.name,
            source.kind,
            source.folder,
            source.sites,
            result.version,
            result.bytes,
            result.count,
            result.error,
        )
        sets.append(planned(wanted, old, nodes, statuses, alive))
    head_address = nodes.get(head_name(), Member("", "")).address or (
        files.read(f"{MEMBERS}/{head_name()}/address") or ""
    )
    plan = Plan(settings["rate"], settings["quota"], settings["reserve"], head_address.strip(), sets, nodes)
    files.write(f"{PLAN}/{PLAN_FILE}", json.dumps(asdict(plan)), 0o640, "root", ACCOUNT)
    _remove_others(sources, results)
    report(plan, sources, statuses, alive)
    return any(one.version and set(missing(one, nodes)) & set(alive) for one in sets)


def read_sources(settings: Mapping[str, Any]) -> list[Source]:
    """Return the data sets of the settings."""
    keys = settings.get("keys", {})
    return [Source(**row, secret_key=keys.get(row["name"], "")) for row in settings["sets"]]


def head_name() -> str:
    """Return the name of this machine."""
    return (files.read(f"{STATE_DIR}/node-name") or "").strip()


def last_plan() -> Plan | None:
    """Return the plan of the last pass."""
    try:
        return read_plan(files.read(f"{PLAN}/{PLAN_FILE}") or "")
    except (ValueError, TypeError, KeyError):
        return None


def members() -> dict[str, Member]:
    """Return the nodes that run jobs, with their addresses."""
    addresses = files.read_in_folders(MEMBERS, "address")
    found = {}
    for name, texts in files.read_parts(NODES, ["site", "fabric.json"]).items():
        if "site" in texts and name in addresses:
            fabric = _fabric(texts.get("fabric.json", ""))
            found[name] = Member(texts["site"].strip(), addresses[name].strip(), fabric)
    return found


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
    files.make_folder(_STATES, 0o700)
    for name in set(files.names_in(_STATES)) - nodes.keys():
        files.remove_folder(f"{_STATES}/{name}")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = pool.map(lambda item: pull(item[1].address, "state", f"{_STATES}/{item[0]}").ok, nodes.items())
        answered = [name for name, ok in zip(nodes, answers, strict=True) if ok]
    seen: dict[str, float] = {}
    with suppress(ValueError):
        seen = json.loads(files.read(_SEEN) or "{}")
    seen = {name: at for name, at in seen.items() if name in nodes} | dict.fromkeys(answered, time.time())
    files.write(_SEEN, json.dumps(seen), 0o600)
    texts = {name: files.read(f"{_STATES}/{name}/{STATUS_FILE}") or "" for name in nodes}
    limit = max(_ALIVE_SECONDS, 4 * _pause(len(nodes)))
    alive = {name for name, at in seen.items() if within(limit, at, time.time())}
    return {name: read_status(text) for name, text in texts.items()}, alive


def adopt_sums(one: PlannedSet, version: str) -> None:
    """Add the sums that the first fetching node has computed to the list of files."""
    path, sums_path = f"{PLAN}/{files_name(one.name, version)}", sums_name(one.name, version)
    # A list of 100,000 files is read only when a node has sums for it.
    nodes = [node for node in one.fetchers.values() if files.exists(f"{_STATES}/{node}/{sums_path}")]
    entries = read_entries(files.read(path, 2**30) or "") if nodes else []
    if not entries or all(entry.sum for entry in entries):
        return
    for node in nodes:
        text = files.read(f"{_STATES}/{node}/{sums_path}", 2**30) or ""
        try:
            sums = read_entries(text)
        except (ValueError, TypeError):
            note(f"{node} reports malformed sums of {one.name}")
            continue
        if [Entry(row.path, row.size) for row in sums] == entries and all(row.sum for row in sums):
            files.write(path, write_entries(sums), 0o640, "root", ACCOUNT)
            note(f"{one.name} {version}: {node} has computed the sums")
            return


def _remove_others(sources: Sequence[Source], results: Mapping[str, Listed]) -> None:
    """Remove lists of earlier versions and of data sets that the config does not have any more."""
    wanted = {PLAN_FILE, *(config_name(one.name) for one in sources if one.config)}
    wanted |= {files_name(name, result.version) for name, result in results.items() if result.version}
    for name in files.names_in(PLAN):
        if name not in wanted:
            files.remove(f"{PLAN}/{name}")
    for name in files.names_in(FETCHED):
        if name.rpartition(".")[0] not in results:
            files.remove(f"{FETCHED}/{name}")


def report(
    plan: Plan, sources: Sequence[Source], statuses: Mapping[str, Mapping[str, Progress]], alive: set[str]
) -> None:
    """Write the report that `tailrack data` shows. Everyone can read it, so it has no secrets."""
    shown = {source.name: printable(source.shown, 300) for source in sources}
    rows = []
    for one in plan.sets:
        nodes = []
        for name, member in sorted(plan.nodes.items()):
            if one.wanted_at(member.site):
                row = statuses.get(name, {}).get(one.name)
                progress = row if row and row.version == one.version else Progress(one.version, "waits")
                nodes.append({"node": name, "site": member.site, "answers": name in alive, **asdict(progress)})
        keys = {"name": one.name, "source": shown[one.name], "folder": one.folder, "version": one.version}
        rows.append({**keys, "bytes": one.bytes, "files": one.count, "error": one.error, "nodes": nodes})
    files.make_folder(STATE, 0o711)
    files.write(REPORT, json.dumps({"time": int(time.time()), "sets": rows}), 0o644)
