"""Checks between sections: duplicate names, invalid references, a cluster without nodes."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain

from components.roles.accounting.settings import check_accounting
from components.roles.backup.settings import HEAD, LISTED, MADE, check_backup
from components.roles.datasets.settings import check_datasets
from components.roles.enroot_pyxis.settings import check_containers
from components.roles.health.settings import check_health
from components.roles.job_reports.settings import check_job_reports
from components.roles.mlflow.settings import check_mlflow
from components.roles.monitoring.settings import check_monitoring
from components.roles.mounts.settings import check_mounts, login_homes
from components.roles.nfs_exports.settings import check_storage
from components.roles.scratch.settings import check_scratch
from components.roles.slurm.files import MAX_NODE_COUNT
from components.roles.slurm.settings import Elastic, Partition, check_slurm
from components.roles.tailnet.settings import check_tailnet
from components.roles.users.settings import check_github_keys, check_groups, check_users
from components.settings.cluster import check_head
from components.settings.money import too_much
from components.settings.problems import ROOT, Report, show_name, show_names, suggest
from components.settings.rules import check_known, check_on, check_once, check_secrets
from components.settings.types import CROSS_SITE, GPUS_FOUND, NODE, AnyNodes
from components.settings.validation import SCRATCH, SHARE, check_storage_measurement, check_training, check_validation
from stacks.config.model import NO_HEAD, PoolConfig, StackConfig
from stacks.sites import KINDS
from stacks.sites.hosts.model import HostConfig, HostsSite
from stacks.sites.kind import NodeSpec, Site
from stacks.sites.rented.checks import check_api_keys

# Keys of the section validation for CPUs; validation.nccl has the same keys for GPUs.
_CPU_KEYS = frozenset({"min_bytes", "max_bytes", "factor", "iterations", "warmup", "gate_bytes"})


def check(config: StackConfig | PoolConfig, report: Report) -> None:
    """Report every conflict between values of the config."""
    nodes = config.all_nodes() if isinstance(config, PoolConfig) else config.nodes()
    head = NO_HEAD if isinstance(config, PoolConfig) else config.head
    if len(nodes) > MAX_NODE_COUNT:
        breaks = "slurmctld registers at most this many (MaxNodeCount)"
        report.add(ROOT + "sites", f"more than {MAX_NODE_COUNT} nodes", breaks, "write smaller pools or fewer hosts")
    check_secrets(config, report)
    _check_duplicate_nodes(config, nodes, report)
    _check_partitions(config, nodes, report)
    _check_logins(config, nodes, report)
    _check_floors(config, report)
    _check_repair(config, nodes, report)
    _check_measured(config, nodes, report)
    _warn_about_sizes(config, nodes, report)
    _check_prices(config, report)
    for kind_name, kind in KINDS.items():
        kind.check([site for site in config.sites if site.kind == kind_name], head, report)
    renting = [name for name, kind in KINDS.items() if kind.rents]
    check_api_keys(config.api_keys, [site.kind for site in config.sites if site.kind in renting], renting, report)
    logins = {host.user: report.at(host).removeprefix(ROOT) for site in config.sites for host in _hosts(site)}
    kinds = [(site.name, KINDS[site.kind]) for site in config.sites]
    brought, made = any(kind.brings_tailnet for _, kind in kinds), [name for name, kind in kinds if not kind.lists_head]
    check_tailnet(config.tailnet, brought, made, report)
    check_validation(config.validation, report)
    if isinstance(config, StackConfig):
        _check_cluster(config, nodes, logins, report)
        return
    if config.elastic is not None and not report.problems:
        _check_elastic(config, config.elastic, report)
    _check_mounts(config, (), logins, report)
    check_scratch(config.scratch, True, (), report)
    if config.containers is not None:
        check_containers(config.containers, {site.name for site in config.sites}, (), report)
    for name, problem in (("training", "the benchmark runs"), ("storage", "storage is measured")):
        if name in config.validation.model_fields_set:
            breaks, fix = f"{problem} only on the cluster's own nodes", "move it to the cluster's stack"
            report.add((config.validation, name), "is in a stack of kind pool", breaks, fix)


def _check_cluster(config: StackConfig, nodes: Sequence[NodeSpec], logins: Mapping[str, str], report: Report) -> None:
    sites = {site.name for site in config.sites}
    share = (config.storage.path, config.storage.mount)
    _check_site_names(config, report)
    _check_relay(config, nodes, report)
    check_head(config.head, report)
    if config.head.site in sites:
        _check_some_node_computes(config, nodes, report)
    check_users(config.users, logins, report)
    check_github_keys(config.users, config.github_keys, report)
    check_groups(config.groups, config.users, report)
    check_storage(config.storage, logins, report)
    check_slurm(config.slurm, report)
    check_health(config.health, report)
    check_accounting(config.accounting, config.users, config.slurm, config.health.enabled, report)
    if config.monitoring is not None:
        check_monitoring(config.monitoring, report)
    check_job_reports(config.job_reports, config.users, report)
    if config.job_hangs is not None:
        check_on((config.job_hangs,), "health", config.health.enabled, "no job's GPUs would be sampled", report)
    if config.mlflow is not None:
        check_mlflow(config.mlflow, config.monitoring, report)
    _check_mounts(config, share, logins, report)
    check_scratch(config.scratch, config.health.enabled, share, report)
    if config.containers is not None:
        check_containers(config.containers, sites, share, report)
    elif config.validation.nccl.image:
        breaks = "the cluster has no containers, so the measurement could not run in one"
        fix = "write a section tailrack:containers, or remove the image"
        report.bad((config.validation.nccl, "image"), "without a section containers", breaks, fix)
    check_datasets(config.datasets, sites, share, report)
    _check_backup(config, nodes, report)
    if config.validation.training is not None:
        check_training(config.validation.training, config.containers is not None, report)
    if config.validation.storage is not None:
        shared = [SHARE, *(mount.path for mount in config.storage.mounts)]
        local = [SCRATCH] if config.scratch.folder is not None else []
        chosen = config.validation.nodes
        listed = chosen.most if isinstance(chosen, AnyNodes) else len(chosen)
        computing = listed or sum(node.compute for node in nodes)
        check_storage_measurement(config.validation.storage, shared, local, sites, computing, report)


def _hosts(site: Site) -> Sequence[HostConfig]:
    return site.hosts if isinstance(site, HostsSite) else ()


def _place_of(config: StackConfig | PoolConfig, node: NodeSpec, report: Report) -> str:
    """Return the path of the name that makes a node: of a pool, a host, or the head node."""
    if node.source is not None:
        return report.at(node.source, "name")
    return report.at(config.head, "name") if isinstance(config, StackConfig) else ROOT


def _check_duplicate_nodes(config: StackConfig | PoolConfig, nodes: Sequence[NodeSpec], report: Report) -> None:
    first: dict[str, NodeSpec] = {}
    duplicates: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        holder = first.setdefault(node.name, node)
        # Two sites with the head node's site name make it twice; the second site is reported.
        if holder is not node and (node.source or holder.source):
            place = _place_of(config, holder, report).removeprefix(ROOT).removesuffix(".name")
            duplicates.setdefault((_place_of(config, node, report), place), []).append(node.name)
    for (path, place), names in duplicates.items():
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        problem = f"makes node {show_name(names[0])}{more} a second time (also in {place})"
        report.add(path, problem, "Slurm would drain one of the two", "rename one of them")


def _check_logins(config: StackConfig | PoolConfig, nodes: Sequence[NodeSpec], report: Report) -> None:
    """Report log-in nodes that cannot be any, or whose GPUs no job could use."""
    for node in nodes:
        if not node.login or node.source is None:
            continue
        path = report.at(node.source, "login")
        if node.is_head:
            report.add(
                path,
                "is true for the head node",
                "users log in there already, and to run no jobs is its default",
                "delete it",
            )
        if node.pod:
            report.add(path, "is true for a pod", "a pod has neither the share nor log-ins of users", "delete it")
        if node.gpu:
            report.add(path, "is true for a machine with GPUs", "no job could use them", "delete one of login and gpu")
        if isinstance(config, PoolConfig) and config.elastic:
            breaks = "jobs bring the machines of this pool, and none could bring this one"
            report.add(path, "is true in an elastic pool", breaks, "write it in another stack")


def _check_partitions(config: StackConfig | PoolConfig, nodes: Sequence[NodeSpec], report: Report) -> None:
    # `all` is not among these, because no name may be `all`.
    names = {GPUS_FOUND: "the partition of nodes whose GPUs the config does not name"}
    names |= {node.gpu.kind: f"the partition of the {node.gpu.kind} GPUs" for node in nodes if node.gpu}
    extras = config.slurm.partitions if isinstance(config, StackConfig) else ()
    sections: list[Site | Partition] = [*config.sites, *extras]
    for section in sections:
        if section.name in names:
            problem = f"names a partition a second time (it is {names[section.name]})"
            fix = f"rename the {'site' if isinstance(section, Site) else 'partition'}"
            report.bad((section, "name"), problem, "slurmctld would reject its config", fix)
        names.setdefault(section.name, f"the partition of {report.at(section).removeprefix(ROOT)}")
    for path, name in {_place_of(config, node, report): node.name for node in nodes if node.name in names}.items():
        problem = f"makes node {show_name(name)}, which has the name of a partition ({names[name]})"
        report.add(path, problem, "the node could not register with slurmctld", "rename one of them")


def _check_repair(config: StackConfig | PoolConfig, nodes: Sequence[NodeSpec], report: Report) -> None:
    section = config if isinstance(config, PoolConfig) else config.cluster
    names = {node.name for node in nodes}
    check_known(section, "repair", names, "is not a node of this stack", "nothing would be repaired", report)


def _check_measured(config: StackConfig | PoolConfig, nodes: Sequence[NodeSpec], report: Report) -> None:
    computing = {node.name for node in nodes if node.compute}
    for section in config.validation.measured:
        for index, name in enumerate(section.nodes):
            if name not in computing:
                path = report.at(section, "nodes", index)
                problem = f"{report.value(path, name)} is not a node that runs jobs"
                report.add(path, problem, "it would not be measured", partial(suggest, name, computing))


def _check_prices(config: StackConfig | PoolConfig, report: Report) -> None:
    """Report prices that are too high for the stack's currency, usually in cents or another currency."""
    for section in chain.from_iterable(
        (site, getattr(site, "head", None), *getattr(site, "pools", ()), *_hosts(site)) for site in config.sites
    ):
        price = getattr(section, "price_per_hour", None)
        if price is not None and (problem := too_much(price, config.currency)):
            fix = "write the price of one machine per hour, with a point before the cents"
            report.add((section, "price_per_hour"), problem, "every cost would be wrong", fix)


def _check_mounts(
    config: StackConfig | PoolConfig, share: Sequence[str], logins: Mapping[str, str], report: Report
) -> None:
    """Report mounts at folders of others, at unknown sites, and with the feature of a node."""
    taken = dict.fromkeys(share, "the cluster's share") | dict(login_homes(logins))
    if config.scratch.folder is not None:
        taken[config.scratch.folder] = "the folder of jobs' scratch space"
    features = [
        (report.at(section, "features", index), feature)
        for section in chain.from_iterable((site, *getattr(site, "pools", ()), *_hosts(site)) for site in config.sites)
        for index, feature in enumerate(getattr(section, "features", ()))
    ]
    check_mounts(config.storage.mounts, {site.name for site in config.sites}, taken, features, report)


def _warn_about_sizes(config: StackConfig | PoolConfig, nodes: Sequence[NodeSpec], report: Report) -> None:
    """Warn about settings of the CPU measurement when every node that runs jobs has GPUs."""
    keys = sorted(_CPU_KEYS & config.validation.model_fields_set)
    computing = [node for node in nodes if node.compute]
    if keys and computing and all(node.gpu for node in computing):
        text = "has no effect, because all nodes that run jobs have GPUs; write it in validation.nccl"
        report.warn(report.at(config.validation, keys[0]), text)


def _check_backup(config: StackConfig, nodes: Sequence[NodeSpec], report: Report) -> None:
    if config.backup is not None:
        storage = {"path": config.storage.path, "mount": config.storage.mount}
        check_backup(config.backup, _machine_owners(config, nodes, config.backup.port), storage, report)
    elif config.head.restore_from is not None:
        problem, breaks = "is set without a section backup", "the place of the backup would be unknown"
        fix = "write tailrack:backup as it was when the backup was made"
        report.add((config.head, "restore_from"), problem, breaks, fix)


def _machine_owners(config: StackConfig, nodes: Sequence[NodeSpec], port: int) -> dict[str, str]:
    """Return the owners of machines by name and by address; addresses of nodes only if they use this port."""
    listed = {site.name for site in config.sites if KINDS[site.kind].lists_head}
    owners = {node.name: LISTED if node.site in listed else MADE for node in nodes}
    for site in config.sites:
        for host in _hosts(site):
            if host.name == config.head.name or host.port == port:
                owners[host.address] = HEAD if host.name == config.head.name else owners.get(host.address, LISTED)
    return {**owners, config.head.name: HEAD}


def _check_relay(config: StackConfig, nodes: Sequence[NodeSpec], report: Report) -> None:
    if config.tailnet.relay is not None:
        names, problem = {node.name for node in nodes}, "is not a node of this stack"
        check_known(config.tailnet.relay, "node", names, problem, "there would be no relay", report)


def _check_some_node_computes(config: StackConfig, nodes: Sequence[NodeSpec], report: Report) -> None:
    """Report a cluster in which no node runs jobs, and one in which none is in partition `all`."""
    computing = {node.site for node in nodes if node.compute}
    outside = [site for site in config.sites if not site.in_all]
    if not computing:
        way = "compute: true and accept_root_risk: true in tailrack:head"
        fix = f"add a pool or a host, or let the head node run jobs ({way})"
        report.add(ROOT + "sites", "no node runs jobs", "every job would wait forever", fix)
    elif outside and not computing - {site.name for site in outside}:
        problem = "leaves no node that runs jobs in partition all"
        breaks = "jobs that name no partition would wait forever"
        fix = "remove it from one of the sites whose nodes run jobs"
        report.add((outside[0], "in_all"), problem, breaks, fix)


def _check_site_names(config: StackConfig, report: Report) -> None:
    valid = {site.name for site in config.sites}
    no_site = f"is not a site (sites are {show_names(valid)})"
    check_known(config.head, "site", valid, no_site, "the head node would have no site", report)
    for partition in config.slurm.partitions:
        check_known(partition, "sites", valid, no_site, "slurmctld would reject its config", report)
        check_once(partition, "sites", report)


def _check_floors(config: StackConfig | PoolConfig, report: Report) -> None:
    scopes = {site.name for site in config.sites} | {CROSS_SITE, NODE}
    problem, breaks = "is neither a site nor cross-site", "the floor would not apply to any measurement"
    check_known(config.validation, "floors_gb_per_s", scopes, problem, breaks, report)


def _check_elastic(config: PoolConfig, elastic: Elastic, report: Report) -> None:
    """Report conflicts of the section `elastic` with the pool's nodes and their prices."""
    if config.idle_limit_minutes is not None:
        breaks = "make reap would destroy the placeholders that bring machines"
        fix = "remove it: elastic.idle_minutes returns idle machines"
        report.add((config, "idle_limit_minutes"), "is set for an elastic pool", breaks, fix)
    nodes, allowed = config.all_nodes(), len(config.nodes())
    if elastic.max is not None and elastic.max > len(nodes):
        problem, breaks = f"is more than the {len(nodes)} node(s) of tailrack:sites", "the others could not be rented"
        report.bad((elastic, "max"), problem, breaks, f"write {len(nodes)}, or larger pools")
    if elastic.cpus % elastic.threads_per_core:
        problem = f"is not a multiple of threads_per_core ({elastic.threads_per_core})"
        report.bad((elastic, "cpus"), problem, "no machine could match it", "correct one of them")
    if elastic.max_price_per_hour is not None:
        place, limit = (elastic, "max_price_per_hour"), elastic.max_price_per_hour
        unpriced = [node.name for node in nodes if node.price_per_hour is None and not node.cloud_has_price]
        if unpriced:
            problem, breaks = f"is set, and node {unpriced[0]} has no price", "the limit could not be kept"
            report.add(place, problem, breaks, "write price_per_hour at its site")
        elif not allowed:
            problem = f"{limit:g} is less than the price of one machine ({nodes[0].price})"
            report.add(place, problem, "jobs could rent nothing", "write a higher limit")
    if 0 < allowed < elastic.min:
        problem = f"is more than the {allowed} machine(s) that may be rented"
        report.bad((elastic, "min"), problem, "they could not stay", f"write {allowed} or less")
