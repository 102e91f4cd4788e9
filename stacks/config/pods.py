"""Rules of a stack with pods: sections of the config that pods cannot use, or that would break their jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from components.roles.cluster_settings import ClusterSettings
from components.roles.slurm.machine_keys import needs_cgroups
from components.roles.tailnet.settings import EXISTING
from components.settings.draft import Draft
from components.settings.network_names import AUTO
from components.settings.problems import ROOT, Problem, Report, child_path
from stacks.config.model import PoolConfig, StackConfig

_PROGRAMS = ("prologslurmctld", "epilogslurmctld")
_REMOVE = "remove it"


def check_pods(draft: Draft, config: StackConfig | PoolConfig, report: Report) -> None:
    """Report keys that name pods where they have no effect, and settings with which no pod works."""
    pods = [node for node in config.nodes() if node.pod]
    if not pods:
        return
    sites, names = {node.site for node in pods}, {node.name for node in pods}
    for path, value, breaks in (*_sites_named(draft), *_nodes_named(draft)):
        if value in sites | names:
            report.add(path, f"{report.value(path, value)} is {_kind(value, sites)}", breaks, _REMOVE)
    for site in draft.items("sites"):
        if site.text("name") in sites:
            _check_networks(site, report)
    tailnet = draft.section("tailnet")
    if tailnet.value("kind") == EXISTING:
        breaks = "no pod could join: pods run a separate tailscaled, and this kind has no key for it"
        report.add(tailnet.path_of("kind"), "is existing in a stack with pods", breaks, "write another kind")
    if isinstance(config, StackConfig):
        _check_slurm(draft.section("slurm"), sites, report)
        for problem in cluster_problems(config):
            report.problems[problem] = None
    elif config.elastic is not None:
        breaks = "Slurm would wait for such a pod until it goes back: it takes the host's boot for the pod's"
        report.add(f"{ROOT}elastic", "is set for pods", breaks, "remove it, or rent machines with systemd")


def cluster_problems(settings: ClusterSettings) -> Iterator[Problem]:
    """Yield the settings of a cluster with which no pod can be a node of it."""
    if settings.slurm.release is not None:
        problem = "is set, and pods cannot install it: they have no share to take it from"
        fix = "remove it where the pods' image has a Slurm that fits the head node's (docs/day-2.md), or give "
        yield Problem(f"{ROOT}slurm.release", f"{problem}; {fix}the pods a separate cluster")
    if key := needs_cgroups(settings):
        yield Problem(f"{ROOT}slurm", f"{key}, and pods have no cgroups; no pod could join; remove that key")


def _check_networks(site: Draft, report: Report) -> None:
    if site.raw.get("fabric") == AUTO:
        breaks = "jobs over several pods need the name of a network that their provider gives them"
        fix = "write the interface of that network, such as ens1, or remove it: then each job runs on one pod"
        report.add(site.path_of("fabric"), "is auto for pods", breaks, fix)
    if "rdma" in site.raw:
        report.add(site.path_of("rdma"), "is set for pods", "it has no effect: NCCL chooses among their ports", _REMOVE)


def _kind(value: str, sites: set[str]) -> str:
    return "a site of pods" if value in sites else "a pod"


def _check_slurm(slurm: Draft, sites: set[str], report: Report) -> None:
    """Report partitions that mix pods with others, and programs that replace those that bring files to pods."""
    for partition in slurm.items("partitions"):
        for path, site in _texts(partition, "sites"):
            if site in sites:
                breaks = "jobs would start there without their files, and a job could get several pods"
                fix = f"remove it; jobs ask for pods with -p {site}"
                report.add(path, f"{report.value(path, site)} is a site of pods", breaks, fix)
    settings = slurm.raw.get("settings")
    for key in settings if isinstance(settings, Mapping) else ():
        if str(key).lower() in _PROGRAMS:
            path = slurm.section("settings").path_of(str(key))
            breaks = "jobs' files would not be brought to pods and back"
            report.add(path, "is a key that tailrack sets itself in a stack with pods", breaks, _REMOVE)


def _sites_named(draft: Draft) -> Iterator[tuple[str, str, str]]:
    """Yield the places that name a site: path, name, and why pods cannot be there."""
    for mount in draft.section("storage").items("mounts"):
        yield from _with(_texts(mount, "sites"), "pods cannot mount file systems")
    for dataset in draft.items("datasets"):
        yield from _with(_texts(dataset, "sites"), "pods do not get data sets")
    for image in draft.section("containers").items("images"):
        yield from _with(_texts(image, "where"), "pods have no containers for jobs")
    validation = draft.section("validation")
    for floor in validation.section("storage").items("floors"):
        yield from _with(_texts(floor, "sites"), "pods are not measured")
    floors = validation.raw.get("floors_gb_per_s")
    for site in floors if isinstance(floors, Mapping) else ():
        yield child_path(validation.path_of("floors_gb_per_s"), str(site)), str(site), "pods are not measured"


def _nodes_named(draft: Draft) -> Iterator[tuple[str, str, str]]:
    """Yield the places that name a node: path, name, and why it cannot be a pod."""
    validation = draft.section("validation")
    for section in (validation, validation.section("training"), validation.section("storage")):
        yield from _with(_texts(section, "nodes"), "pods are not measured")
    relay = draft.section("tailnet").values.get("relay")
    if isinstance(relay, Draft) and (name := relay.text("node")):
        yield relay.path_of("node"), name, "pods have no UDP port, so there would be no relay"


def _texts(section: Draft, key: str) -> Iterator[tuple[str, str]]:
    values = section.values.get(key)
    for index, value in enumerate(values if isinstance(values, tuple) else ()):
        yield child_path(section.path_of(key), index), str(value)


def _with(named: Iterable[tuple[str, str]], breaks: str) -> Iterator[tuple[str, str, str]]:
    return ((path, name, breaks) for path, name in named)
