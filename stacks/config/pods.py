"""Rules of a stack with pods: sections of the config that pods cannot use, or that would break their jobs."""

from collections.abc import Iterator, Sequence

from components.roles.cluster_settings import ClusterSettings
from components.roles.network.tailnet.settings import EXISTING
from components.roles.slurm.slurm.machine_keys import needs_cgroups
from components.settings.network_names import AUTO
from components.settings.problems import ROOT, Problem, Report
from components.settings.section import Section
from stacks.config.model import AnyConfig, StackConfig
from stacks.sites.kind import Site

_PROGRAMS = ("prologslurmctld", "epilogslurmctld")
_REMOVE = "remove it"


def check_pods(config: AnyConfig, report: Report) -> None:
    """Report keys that name pods where they have no effect, and settings with which no pod works."""
    pods = [node for node in config.nodes() if node.pod]
    if not pods:
        return
    sites, names = {node.site for node in pods}, {node.name for node in pods}
    for path, value, breaks in _named(config, report):
        if value in sites | names:
            kind = "a site of pods" if value in sites else "a pod"
            report.add(path, f"{report.value(path, value)} is {kind}", breaks, _REMOVE)
    for site in config.sites:
        if site.name in sites:
            _check_networks(site, report)
    if config.tailnet.kind == EXISTING:
        breaks = "no pod could join: pods run a separate tailscaled, and this kind has no key for it"
        report.add((config.tailnet, "kind"), "is existing in a stack with pods", breaks, "write another kind")
    if isinstance(config, StackConfig):
        _check_slurm(config, sites, report)
        report.problems |= dict.fromkeys(cluster_problems(config))
    elif config.elastic is not None:
        breaks = "Slurm would wait for such a pod until it goes back: it takes the host's boot for the pod's"
        report.add(f"{ROOT}elastic", "is set for pods", breaks, "remove it, or rent machines with systemd")


def cluster_problems(settings: ClusterSettings) -> Iterator[Problem]:
    """Yield the settings of a cluster with which no pod can be a node of it."""
    if settings.slurm.release is not None:
        problem = "is set, and pods cannot install it: they have no share to take it from"
        fix = "remove it where the pods' image has a Slurm that fits the head node's (docs/day-2.md), or give "
        yield Problem(f"{ROOT}slurm.release", f"{problem}; {fix}the pods a separate cluster")
    if settings.storage.homes is not None:
        fix = "remove it, or give the pods a separate cluster"
        yield Problem(f"{ROOT}storage.homes", f"is set, and pods cannot mount the homes; {fix}")
    if key := needs_cgroups(settings):
        yield Problem(f"{ROOT}slurm", f"{key}, and pods have no cgroups; no pod could join; remove that key")


def _check_networks(site: Site, report: Report) -> None:
    if site.fabric == AUTO and "fabric" in site.model_fields_set:
        breaks = "jobs over several pods need the name of a network that their provider gives them"
        fix = "write the interface of that network, such as ens1, or remove it: then each job runs on one pod"
        report.add((site, "fabric"), "is auto for pods", breaks, fix)
    if "rdma" in site.model_fields_set:
        problem, breaks = "is set for pods", "it has no effect: NCCL chooses among their ports"
        report.add((site, "rdma"), problem, breaks, _REMOVE)


def _check_slurm(config: StackConfig, sites: set[str], report: Report) -> None:
    """Report partitions that mix pods with others, and programs that replace those that bring files to pods."""
    for partition in config.slurm.partitions:
        for index, site in enumerate(partition.sites):
            if site in sites:
                breaks = "jobs would start there without their files, and a job could get several pods"
                fix = f"remove it; jobs ask for pods with -p {site}"
                report.bad((partition, "sites", index), "is a site of pods", breaks, fix)
    for key in config.slurm.settings:
        if key.lower() in _PROGRAMS:
            path, breaks = (config.slurm, "settings", key), "jobs' files would not be brought to pods and back"
            report.add(path, "is a key that tailrack sets itself in a stack with pods", breaks, _REMOVE)


def _named(config: AnyConfig, report: Report) -> Iterator[tuple[str, str, str]]:
    """Yield the places that name a site or a node: path, name, and why it cannot be one of pods."""
    measured, validation = "pods are not measured", config.validation
    lists: list[tuple[Section, str, Sequence[str], str]] = [
        (mount, "sites", mount.sites or (), "pods cannot mount file systems") for mount in config.storage.mounts
    ]
    if config.containers is not None:
        breaks = "pods have no containers for jobs"
        lists += [(image, "where", image.where or (), breaks) for image in config.containers.images]
    lists += [(section, "nodes", section.nodes, measured) for section in validation.measured]
    if validation.storage is not None:
        lists += [(floor, "sites", floor.sites, measured) for floor in validation.storage.floors]
    if isinstance(config, StackConfig):
        lists += [(dataset, "sites", dataset.sites or (), "pods do not get data sets") for dataset in config.datasets]
        if (relay := config.tailnet.relay) is not None:
            yield report.at(relay, "node"), relay.node, "pods have no UDP port, so there would be no relay"
    for section, key, values, breaks in lists:
        for index, value in enumerate(values):
            yield report.at(section, key, index), value, breaks
    for site in validation.floors_gb_per_s:
        yield report.at(validation, "floors_gb_per_s", site), site, measured
