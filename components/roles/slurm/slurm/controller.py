"""slurmctld on the head node, and its files: the cluster's, with the lines that nodes, pools and roles add.

It is reconfigured, not restarted. If it rejects files, the last accepted ones come back.
"""

import re
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from components.node import files
from components.node.files import File
from components.node.log import note
from components.node.run import attempt
from components.node.systemd import is_active
from components.node.waiting import sleep, wait_until
from components.roles.slurm.slurm.folders import (
    BASE,
    CONF,
    MEASURE_PARTITION,
    NODES,
    POOLS,
    PUBLISHED,
    SERVICES,
    SHARE,
    STAGE_IN,
    STAGE_OUT,
    TAKEN,
)
from components.roles.slurm.slurm.profiles import CGROUP_CONF, own_profiles, with_own_keys, without_own_keys
from components.roles.storage.share.mount import is_ready
from components.slurm_commands import slurm

Parts = Mapping[str, Mapping[str, str]]
# A site's comment (node_lines.py): its nodes are not in partition `all`.
_OUTSIDE_ALL = re.compile(r"^# Not in partition all: (\S+)$", re.MULTILINE)
# A site's comment: its nodes are pods, without or with a network that they have in common.
_OF_PODS = re.compile(r"^# Pods( in one network)?: (\S+)$", re.MULTILINE)
_SITE_NODE_SETS = re.compile(r"^NodeSet=(site-\S+) ", re.MULTILINE)
_NODES = re.compile(r"^PartitionName=\S+ Nodes=(\S+) ")
_ALL = "PartitionName=all Nodes=ALL "
_ABOUT_POOLS = ("placeholders", "kept", "memory", "gpu_cpus")
_ABOUT_NODES = ("site", "profile", "fabric", "memory", "gpu_cpus")
# Keys of a partition, and the parts that have their numbers: a CPU's share of the memory of the smallest node, and a
# GPU's share of its CPUs. Without the first, a job that asks for no memory would get a whole node's. Without the
# second, a job that asks for GPUs alone would get one CPU, and its memory; -c or --cpus-per-gpu replaces the default.
_DEFAULTS = {"DefMemPerCPU": "memory", "DefCpuPerGPU": "gpu_cpus"}
# The list of plugins of Slurm's commands, which role enroot_pyxis writes.
PLUGINS = "plugstack.conf"
# Seconds for slurmctld to stay up with new files.
_STAY_LIMIT = 60
_MOST_LINES = 12


@dataclass(frozen=True)
class Additions:
    """The texts that nodes, pools and roles add, each by its folder and file."""

    nodes: Parts
    pools: Parts
    services: Parts

    def texts(self, name: str) -> list[str]:
        """Return all parts of a file."""
        folders = (folder for parts in (self.services, self.pools, self.nodes) for folder in parts.values())
        return [folder[name] for folder in folders if name in folder]


def merged(base: str) -> dict[str, str]:
    """Return slurmctld's files by name, made from the files in a folder and from all additions."""
    names = [name for name in files.names_in(base) if not name.startswith(".")]
    additions = Additions(
        files.read_parts(NODES, list(dict.fromkeys([*names, *_ABOUT_NODES]))),
        files.read_parts(POOLS, list(dict.fromkeys([*names, *_ABOUT_POOLS]))),
        files.read_parts(SERVICES, names),
    )
    texts = {name: (files.read(f"{base}/{name}") or "").rstrip("\n") for name in names}
    profiles = own_profiles(texts.get("slurm.conf", ""), additions.nodes)
    return {name: _merge(name, text, additions, profiles) for name, text in texts.items()}


def _merge(name: str, text: str, additions: Additions, profiles: Collection[str]) -> str:
    """Return one file. `profiles`: those of the machines, if each has its own keys."""
    if name == "gres.conf":
        return text
    if name == "topology.conf":
        # Each node's fabric (fabric/groups.py) is a comment for that node; Slurm delivers it with the file.
        fabrics = (part["fabric"].rstrip("\n") for part in additions.nodes.values() if "fabric" in part)
        return "\n".join([text, *_topology(additions), *fabrics])
    if name == "cgroup.conf" and profiles:
        return CGROUP_CONF
    there = set(text.split("\n"))
    added = [line for line in _lines(additions.texts(name)) if line not in there]
    if name == "slurm.conf" and profiles:
        text, added = with_own_keys(text, profiles), without_own_keys(added)
    text = "\n".join([text, *added])
    if name == "slurm.conf":
        text = _with_pods(_with_all(text))
        parts = {**{f"pool {pool}": part for pool, part in additions.pools.items()}, **additions.nodes}
        text = "\n".join([text, *_power_saving(additions.pools)])
        for key, about in _DEFAULTS.items():
            text = _with_default(text, key, [part.get(about, "") for part in parts.values()])
    return text


def _with_all(text: str) -> str:
    """Return slurm.conf with the nodes of partition `all`: those of all sites that do not leave it.

    If a site does, a partition of every node is left for measurements; the submit script puts their jobs into it.
    """
    outside = set(_OUTSIDE_ALL.findall(text))
    inside = dict.fromkeys(name for name in _SITE_NODE_SETS.findall(text) if name not in outside)
    if not outside or not inside:
        return text
    every = f"PartitionName={MEASURE_PARTITION} Nodes=ALL MaxTime=INFINITE State=UP"
    return text.replace(_ALL, f"PartitionName=all Nodes={','.join(inside)} ") + f"\n{every}"


def _with_pods(text: str) -> str:
    """Return slurm.conf with the limits of pods' partitions, and the programs that bring a job's files there and back.

    Unless pods have a network in common, a job there has one node.
    """
    pods = _OF_PODS.findall(text)
    if not pods:
        return text
    alone = {node_set for network, node_set in pods if not network}
    lines = (
        f"{line} MaxNodes=1" if (found := _NODES.search(line)) and found[1] in alone else line
        for line in text.split("\n")
    )
    return "\n".join([*lines, f"PrologSlurmctld={STAGE_IN}", f"EpilogSlurmctld={STAGE_OUT}"])


def _lines(texts: Iterable[str]) -> list[str]:
    """Return the lines of texts, each once, sorted."""
    return sorted({line for text in texts for line in text.split("\n") if line})


def _power_saving(pools: Parts) -> Iterator[str]:
    """Yield the lines of slurm.conf that let slurmctld suspend and resume placeholders, if there are any.

    The programs do nothing: `make elastic` reads the nodes' states. Slurm requires programs.
    """
    if not any(part.get("placeholders") for part in pools.values()):
        return
    yield "SuspendProgram=/bin/true"
    yield "ResumeProgram=/bin/true"
    if kept := _lines(part.get("kept", "") for part in pools.values()):
        yield f"SuspendExcNodes={','.join(kept)}"


def _topology(additions: Additions) -> Iterator[str]:
    """Yield topology.conf's lines: one leaf switch per site, all below the tailnet.

    Placeholders are in it whether or not their machines exist. Slurm rejects a switch without nodes, so sites without
    nodes are left out.
    """
    places = {node: part.get("site", "").partition("\n")[0].strip() for node, part in additions.nodes.items()}
    for part in additions.pools.values():
        places |= dict(line.split() for line in part.get("placeholders", "").splitlines())
    sites = defaultdict[str, list[str]](list)
    for node, site in sorted(places.items()):
        if site:
            sites[site].append(node)
    for site in sorted(sites):
        yield f"SwitchName={site} Nodes={','.join(sites[site])}"
    if sites:
        yield f"SwitchName=tailnet Switches={','.join(sorted(sites))}"


def _with_default(text: str, key: str, numbers: Iterable[str]) -> str:
    """Return slurm.conf with a key for each partition: the smallest number of its NodeSets, if not 0.

    If the user sets such a key (also DefMemPerNode), add none: Slurm would prefer the partition's.

    numbers   lines such as `site-rack 4096`
    """
    if re.search(f"^{key.removesuffix('CPU')}", text, re.MULTILINE | re.IGNORECASE):
        return text
    smallest: dict[str, int] = {}
    for node_set, number in re.findall(r"^(\S+) (\d+)$", "\n".join(numbers), re.MULTILINE):
        smallest[node_set] = min(int(number), smallest.get(node_set, int(number)))
    return "\n".join(
        f"{line} {key}={number}" if (number := _of_partition(line, smallest)) else line for line in text.split("\n")
    )


def _of_partition(line: str, smallest: Mapping[str, int]) -> int:
    node_sets = re.search(r"Nodes=([^ ]*)", line)
    if not line.startswith("PartitionName=") or not node_sets:
        return 0
    return min((smallest[name] for name in node_sets[1].split(",") if name in smallest), default=0)


def answers() -> bool:
    """Return whether slurmctld answers."""
    return "is UP" in slurm.ping().output


def _is_silent() -> bool:
    """Return whether slurmctld does not answer. It is also False if scontrol cannot read the files itself."""
    return "is DOWN" in slurm.ping().output


def _process() -> str:
    return attempt("systemctl", "show", "-P", "MainPID", "slurmctld").output.strip()


def _stays() -> bool:
    """Return whether slurmctld keeps running.

    One that starts is ready for systemd and answers before it has read all its files.
    """
    process = _process()
    if not answers():
        return False
    sleep(3)
    return is_active("slurmctld") and _process() == process


def node_deleted(name: str) -> bool:
    """Delete a node, and return whether slurmctld no longer has it."""
    return not slurm.has_node(name) or slurm.delete(nodename=name)


def reconfigure() -> str:
    """Have the running slurmctld read its files again. Return why it does not; empty if it does."""
    process = _process()
    note("reconfiguring slurmctld")
    if slurm.reconfigure():
        return ""
    # Check for silence first: the watchdog may restart a hanging slurmctld before anything answers.
    if not _is_silent() and _process() == process:
        return "slurmctld rejects the new configuration and keeps the old one"
    # It has ended, or it hangs and its watchdog ends it; it restarts with these files.
    if wait_until(_stays, _STAY_LIMIT):
        return ""
    return "slurmctld rejects the new configuration; it restarts with the old one"


def start() -> str:
    """Start slurmctld with its present files. Return why it does not; empty if it does."""
    # Where it has never run, there is no old configuration to restore, so do not wait.
    if attempt("systemctl", "restart", "slurmctld").ok and (
        not files.is_folder(TAKEN) or wait_until(_stays, _STAY_LIMIT)
    ):
        return ""
    return "slurmctld does not start with this configuration"


def errors(since: int) -> list[str]:
    """Return slurmctld's errors since a time, or its last lines if it logged no errors."""
    attempt("journalctl", "--sync")
    journal = ("journalctl", "-u", "slurmctld", "--since", f"@{since}", "-o", "cat", "--no-pager")
    lines = attempt(*journal).output.splitlines()
    return ([line for line in lines if re.search(r"(error|fatal): ", line)] or lines)[-_MOST_LINES:]


def offer(base: str = BASE, names: Collection[str] = ()) -> str:
    """Give slurmctld the files made from a folder if one of the named ones has changed (default: all).

    Return why slurmctld rejects them; empty if it accepts them. Its errors are then in the log, and it has its last
    accepted files.
    """
    begin = int(time.time())
    texts = merged(base)
    _write(CONF, texts)
    reason = ""
    if not is_active("slurmctld"):
        reason = start() or _await()
    elif _changed(names or texts):
        reason = reconfigure() or _await()
    if reason:
        sys.stderr.writelines(f"{line}\n" for line in errors(begin))
        _restore()
        return reason
    _write(TAKEN, texts)
    _publish(texts)
    return ""


def _write(folder: str, texts: Mapping[str, str]) -> None:
    files.write_all([File(f"{folder}/{name}", text) for name, text in texts.items()])


def _publish(texts: Mapping[str, str]) -> None:
    """Write the files to the share, for log-in nodes (login.py)."""
    share = (files.read(SHARE) or "").strip()
    if share and is_ready(share):
        files.make_folder(f"{share}/.tailrack")
        plugins = files.read(f"{CONF}/{PLUGINS}")
        _write(f"{share}/{PUBLISHED}", {**texts, **({PLUGINS: plugins} if plugins else {})})


def _changed(names: Collection[str]) -> bool:
    for name in names:
        text = files.read(f"{CONF}/{name}")
        if text is None or text != files.read(f"{TAKEN}/{name}"):
            return True
    return False


def _await() -> str:
    # slurmctld has read its files once it answers.
    return "" if wait_until(answers, 120) else "slurmctld does not answer"


def _restore() -> None:
    names = [name for name in files.names_in(TAKEN) if not name.startswith(".")]
    if not names:
        return
    _write(CONF, {name: files.read(f"{TAKEN}/{name}") or "" for name in names})
    if not is_active("slurmctld") and not attempt("systemctl", "restart", "slurmctld").ok:
        note("slurmctld does not start with the old files")
    if not wait_until(answers, 60):
        note("slurmctld does not answer with the old files either")
