"""Checks between sections: duplicate names, invalid references, a cluster without nodes."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, islice

from components.roles.accounting.settings import check_accounting
from components.roles.backup.settings import HEAD, LISTED, MADE, check_backup
from components.roles.datasets.settings import check_datasets
from components.roles.enroot_pyxis.settings import check_containers
from components.roles.health.settings import Health
from components.roles.job_hangs.settings import check_job_hangs
from components.roles.job_reports.settings import check_job_reports
from components.roles.mlflow.settings import check_mlflow
from components.roles.monitoring.settings import check_monitoring
from components.roles.mounts.settings import check_mounts, login_homes
from components.roles.nfs_exports.settings import Storage, check_storage
from components.roles.scratch.settings import check_scratch
from components.roles.slurm.files import MAX_NODE_COUNT
from components.roles.slurm.settings import check_slurm
from components.roles.tailnet.checks import Sites, check_tailnet
from components.roles.user_groups.settings import check_groups
from components.roles.user_keys.settings import check_github_keys
from components.roles.users.settings import check_users
from components.settings.cluster import Head, check_head
from components.settings.draft import Draft, suggest
from components.settings.money import too_much
from components.settings.problems import ROOT, Report, child_path, show_name, show_names
from components.settings.section import keys_of
from components.settings.storage_measurement import SCRATCH, SHARE, check_storage_measurement
from components.settings.types import CROSS_SITE, GPUS_FOUND, NODE
from components.settings.validation import check_training, check_validation
from stacks.config.model import PoolConfig
from stacks.sites import KINDS
from stacks.sites.kind import Claim, Kind, NodeSpec, Site
from stacks.sites.rented.checks import check_api_keys

# Keys of the section validation for CPUs; validation.nccl has the same keys for GPUs.
_CPU_KEYS = frozenset({"min_bytes", "max_bytes", "factor", "iterations", "warmup", "gate_bytes"})


def check(config: Draft, report: Report) -> None:
    """Report every conflict between values of the config."""
    pool = config.model is PoolConfig
    sites, head = config.items("sites"), Draft(ROOT + "head", Head) if pool else config.section("head")
    claims = (claim for site in sites if (kind := _kind(site)) for claim in kind.claims(site, head))
    listed_nodes = [*islice(claims, MAX_NODE_COUNT)]
    if next(claims, None) is not None:
        breaks = "slurmctld registers at most this many (MaxNodeCount)"
        report.add(ROOT + "sites", f"more than {MAX_NODE_COUNT} nodes", breaks, "write smaller pools or fewer hosts")
    nodes = [*_head(head, sites), *listed_nodes]
    _check_duplicate_nodes(nodes, report)
    _check_partitions(config, nodes, report)
    _check_site_names(config, head, report)
    _check_repair(config if pool else config.section("cluster"), nodes, report)
    _check_measured(config.section("validation"), nodes, report)
    _warn_about_sizes(config.section("validation"), nodes, report)
    _check_prices(config, sites, report)
    if isinstance(relay := config.section("tailnet").values.get("relay"), Draft):
        _check_relay(relay, nodes, report)
    for kind_name, kind in KINDS.items():
        kind.check([site for site in sites if site.text("kind") == kind_name], head, report)
    renting = [name for name, kind in KINDS.items() if kind.rents]
    used = [name for site in sites if (name := site.text("kind")) in renting]
    check_api_keys(config.value("api_keys"), config.raw.get("api_keys"), used, renting, report)
    storage = Draft(ROOT + "storage", Storage) if pool else config.section("storage")
    logins = {node.login: node.place for node in listed_nodes if node.login is not None}
    if not pool:
        check_head(head, report)
        _check_some_node_computes(sites, nodes, report)
        _check_all_has_nodes(sites, head, report)
        check_users(config.items("users"), logins, report)
        check_github_keys(config, report)
        check_groups(config.items("groups"), config.items("users"), report)
        check_storage(storage, logins, report)
        check_slurm(config.section("slurm"), report)
        slurm, scripts = config.section("slurm"), config.section("health")
        check_accounting(config.section("accounting"), config.items("users"), slurm, scripts, report)
        if isinstance(monitoring := config.values.get("monitoring"), Draft):
            check_monitoring(monitoring, report)
        job_reports = config.values.get("job_reports")
        if isinstance(job_reports, Draft) or config.raw.get("job_reports") is None:
            check_job_reports(job_reports if isinstance(job_reports, Draft) else None, config.items("users"), report)
        if isinstance(job_hangs := config.values.get("job_hangs"), Draft):
            check_job_hangs(job_hangs, scripts, report)
        if isinstance(mlflow := config.values.get("mlflow"), Draft):
            check_mlflow(mlflow, monitoring if isinstance(monitoring, Draft) else None, report)
    share = [folder for name in ("path", "mount") if isinstance(folder := storage.value(name), str)]
    _check_mounts(config, [] if pool else share, logins, report)
    health = Draft(ROOT + "health", Health) if pool else config.section("health")
    check_scratch(config.section("scratch"), health, share, report)
    if config.raw.get("containers") is not None:
        site_names = {name for site in sites if (name := site.text("name")) is not None}
        check_containers(config.section("containers"), site_names, share, report)
    elif not pool:
        _check_no_containers(config.section("validation").section("nccl"), report)
    if not pool:
        site_names = {name for site in sites if (name := site.text("name")) is not None}
        check_datasets(config.items("datasets"), site_names, share, report)
        _check_backup(config, sites, head, storage, report)
    check_tailnet(config.section("tailnet"), _tailnet_sites(sites), report)
    check_validation(config.section("validation"), report)
    _check_training(config.section("validation"), pool, config.raw.get("containers") is not None, report)
    _check_measured_storage(config, pool, nodes, report)


def _kind(site: Draft) -> Kind[Site, NodeSpec] | None:
    return KINDS.get(site.text("kind") or "")


def _tailnet_sites(sites: Sequence[Draft]) -> Sites:
    kinds = [(site.text("name") or "", _kind(site)) for site in sites]
    return Sites(
        readable=bool(kinds) and all(kind for _, kind in kinds),
        brings=any(kind.brings_tailnet for _, kind in kinds if kind),
        makes=[name for name, kind in kinds if kind and not kind.lists_head],
    )


def _head(head: Draft, sites: Sequence[Draft]) -> list[Claim]:
    """Return the head node, unless its site lists it among its machines."""
    kinds = [_kind(site) for site in sites if site.text("name") == head.text("site")]
    if not head.raw or any(kind and kind.lists_head for kind in kinds):
        return []
    # If the head node's site does not exist, the head node may be a machine that another site lists.
    name = head.text("name") if kinds else None
    return [Claim(name, head.path_of("name"), head.value("compute") is not False)]


def _check_duplicate_nodes(nodes: Sequence[Claim], report: Report) -> None:
    first: dict[str, Claim] = {}
    duplicates: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        if node.name is not None and (holder := first.setdefault(node.name, node)) is not node:
            duplicates.setdefault((node.path, holder.place), []).append(node.name)
    for (path, place), names in duplicates.items():
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        problem = f"makes node {show_name(names[0])}{more} a second time (also in {place})"
        report.add(path, problem, "Slurm would drain one of the two", "rename one of them")


def _check_partitions(config: Draft, nodes: Sequence[Claim], report: Report) -> None:
    # `all` is not among these, because no name may be `all`.
    names = {GPUS_FOUND: "the partition of nodes whose GPUs the config does not name"}
    names |= {node.gpu.kind: f"the partition of the {node.gpu.kind} GPUs" for node in nodes if node.gpu}
    sites, extras = config.items("sites"), config.section("slurm").items("partitions")
    for section, kind in [*((site, "site") for site in sites), *((extra, "partition") for extra in extras)]:
        name, path = section.text("name"), section.path_of("name")
        if name is None:
            continue
        if name in names:
            problem = f"{report.value(path, name)} names a partition a second time (it is {names[name]})"
            report.add(path, problem, "slurmctld would reject its config", f"rename the {kind}")
        names.setdefault(name, f"the partition of {section.path.removeprefix(ROOT)}")
    for path, name in {node.path: node.name for node in nodes if node.name is not None and node.name in names}.items():
        problem = f"makes node {show_name(name)}, which has the name of a partition ({names[name]})"
        report.add(path, problem, "the node could not register with slurmctld", "rename one of them")


def _check_repair(cluster: Draft, nodes: Sequence[Claim], report: Report) -> None:
    names = {node.name for node in nodes if node.name is not None}
    repair = cluster.raw.get("repair")
    for name in map(str, repair) if isinstance(repair, Mapping) and len(names) == len(nodes) else ():
        if name not in names:
            path = child_path(cluster.path_of("repair"), name)
            report.add(path, "is not a node of this stack", "nothing would be repaired", suggest(name, names))


def _check_measured(validation: Draft, nodes: Sequence[Claim], report: Report) -> None:
    computing = {node.name for node in nodes if node.name is not None and node.compute}
    for section in (validation, validation.section("training"), validation.section("storage")):
        names = section.values.get("nodes")
        for index, name in enumerate(names if isinstance(names, tuple) and all(node.name for node in nodes) else ()):
            if name not in computing:
                path = child_path(section.path_of("nodes"), index)
                problem = f"{report.value(path, name)} is not a node that runs jobs"
                report.add(path, problem, "it would not be measured", partial(suggest, name, computing))


def _check_prices(config: Draft, sites: Sequence[Draft], report: Report) -> None:
    """Report prices that are too high for the stack's currency, usually in cents or another currency."""
    for section in chain.from_iterable(
        (site, site.section("head"), *site.items("pools"), *site.items("hosts")) for site in sites
    ):
        price = section.values.get("price_per_hour")
        if isinstance(price, float) and (problem := too_much(price, config.value("currency"))):
            fix = "write the price of one machine per hour, with a point before the cents"
            report.add(section.path_of("price_per_hour"), problem, "every cost would be wrong", fix)


def _check_mounts(config: Draft, share: Sequence[str], logins: Mapping[str, str], report: Report) -> None:
    """Report mounts at folders of others, at unknown sites, and with the feature of a node."""
    mounts = config.section("storage").items("mounts")
    if not mounts:
        return
    sites = config.items("sites")
    names = [site.text("name") for site in sites]
    taken = dict.fromkeys(share, "the cluster's share") | dict(login_homes(logins))
    if isinstance(scratch := config.section("scratch").value("folder"), str):
        taken[scratch] = "the folder of jobs' scratch space"
    features = [
        (child_path(section.path_of("features"), index), feature)
        for section in chain.from_iterable((site, *site.items("pools"), *site.items("hosts")) for site in sites)
        for index, feature in enumerate(_texts(section.values.get("features")))
    ]
    check_mounts(mounts, None if None in names else {*filter(None, names)}, taken, features, report)


def _texts(value: object) -> Sequence[str]:
    return value if isinstance(value, tuple) else ()


def _warn_about_sizes(validation: Draft, nodes: Sequence[Claim], report: Report) -> None:
    """Warn about settings of the CPU measurement when every node that runs jobs has GPUs."""
    keys = sorted(_CPU_KEYS & validation.raw.keys())
    computing = [node for node in nodes if node.compute]
    if keys and computing and all(node.gpu for node in computing):
        text = "has no effect, because all nodes that run jobs have GPUs; write it in validation.nccl"
        report.warn(validation.path_of(keys[0]), text)


def _check_training(validation: Draft, pool: bool, containers: bool, report: Report) -> None:
    if validation.raw.get("training") is None:
        return
    if pool:
        problem, breaks = "is in a stack of kind pool", "the benchmark runs only on the cluster's own nodes"
        fix = "move it to the cluster's stack"
        report.add(validation.path_of("training"), problem, breaks, fix)
    else:
        check_training(validation.section("training"), containers, report)


def _check_measured_storage(config: Draft, pool: bool, nodes: Sequence[Claim], report: Report) -> None:
    validation = config.section("validation")
    if validation.raw.get("storage") is None:
        return
    if pool:
        problem, breaks = "is in a stack of kind pool", "storage is measured only on the cluster's own nodes"
        fix = "move it to the cluster's stack"
        report.add(validation.path_of("storage"), problem, breaks, fix)
        return
    sites = {name for site in config.items("sites") if (name := site.text("name")) is not None}
    shared = [SHARE, *(path for mount in config.section("storage").items("mounts") if (path := mount.text("path")))]
    local = [SCRATCH] if config.section("scratch").raw.get("folder") is not None else []
    listed = validation.value("nodes")
    computing = len(listed) if isinstance(listed, tuple) and listed else sum(node.compute for node in nodes)
    check_storage_measurement(validation.section("storage"), shared, local, sites, computing, report)


def _check_no_containers(nccl: Draft, report: Report) -> None:
    if image := nccl.value("image"):
        breaks = "the cluster has no containers, so the measurement could not run in one"
        path, fix = nccl.path_of("image"), "write a section tailrack:containers, or remove the image"
        report.add(path, f"{report.value(path, image)} without a section containers", breaks, fix)


def _check_backup(config: Draft, sites: Sequence[Draft], head: Draft, storage: Draft, report: Report) -> None:
    if config.raw.get("backup") is not None:
        backup = config.section("backup")
        owners = _machine_owners(sites, head, backup.value("port"))
        check_backup(backup, owners, {name: storage.value(name) for name in ("path", "mount")}, report)
    elif head.raw.get("restore_from") is not None:
        problem, breaks = "is set without a section backup", "the place of the backup would be unknown"
        fix = "write tailrack:backup as it was when the backup was made"
        report.add(head.path_of("restore_from"), problem, breaks, fix)


def _machine_owners(sites: Sequence[Draft], head: Draft, port: object) -> dict[str, str]:
    """Return the owners of machines by name and by address; addresses of nodes only if they use this port."""
    owners: dict[str, str] = {}
    for site in sites:
        kind = _kind(site)
        for claim in islice(kind.claims(site, head), MAX_NODE_COUNT) if kind else ():
            if claim.name is not None:
                owners[claim.name] = LISTED if kind and kind.lists_head else MADE
        for host in site.items("hosts"):
            is_head, address = host.text("name") == head.text("name"), host.text("address")
            if address and (is_head or host.value("port") == port):
                owners[address] = HEAD if is_head else owners.get(address, LISTED)
    return {**owners, head.text("name") or "": HEAD}


def _check_relay(relay: Draft, nodes: Sequence[Claim], report: Report) -> None:
    name, names = relay.text("node"), {node.name for node in nodes if node.name is not None}
    if name is not None and len(names) == len(nodes) and name not in names:
        path = relay.path_of("node")
        problem = f"{report.value(path, name)} is not a node of this stack"
        report.add(path, problem, "there would be no relay", partial(suggest, name, names))


def _check_some_node_computes(sites: Sequence[Draft], nodes: Sequence[Claim], report: Report) -> None:
    lists = {name for kind in KINDS.values() for name, key in keys_of(kind.model).items() if key.many}
    readable = all(_kind(site) and lists & site.raw.keys() <= site.values.keys() for site in sites)
    if sites and readable and not any(node.compute or node.name is None for node in nodes):
        way = "compute: true and accept_root_risk: true in tailrack:head"
        fix = f"add a pool or a host, or let the head node run jobs ({way})"
        report.add(ROOT + "sites", "no node runs jobs", "every job would wait forever", fix)


def _check_all_has_nodes(sites: Sequence[Draft], head: Draft, report: Report) -> None:
    outside = [site for site in sites if site.values.get("in_all") is False]
    inside = [site for site in sites if site.values.get("in_all") is not False]
    if not outside or any(_kind(site) is None for site in inside):
        return
    claims = chain.from_iterable(kind.claims(site, head) for site in inside if (kind := _kind(site)))
    heads = _head(head, inside) if head.text("site") in {site.text("name") for site in inside} else []
    if not any(node.compute or node.name is None for node in chain(heads, claims)):
        problem = "leaves no node that runs jobs in partition all"
        breaks = "jobs that name no partition would wait forever"
        fix = "remove it from one of the sites whose nodes run jobs"
        report.add(outside[0].path_of("in_all"), problem, breaks, fix)


def _check_site_names(config: Draft, head: Draft, report: Report) -> None:
    names = [site.text("name") for site in config.items("sites")]
    valid = {name for name in names if name is not None}
    if not valid or None in names:  # any name may belong to a site that could not be read
        return
    no_site = f"is not a site (sites are {show_names(valid)})"
    if (place := head.text("site")) is not None and place not in valid:
        path = head.path_of("site")
        problem = f"{report.value(path, place)} {no_site}"
        report.add(path, problem, "the head node would have no site", partial(suggest, place, valid))
    for partition in config.section("slurm").items("partitions"):
        seen: set[str] = set()
        sites = partition.values.get("sites", ())
        for index, name in enumerate(sites if isinstance(sites, tuple) else ()):
            path = child_path(partition.path_of("sites"), index)
            if name not in valid:
                problem = f"{report.value(path, name)} {no_site}"
                report.add(path, problem, "slurmctld would reject its config", partial(suggest, name, valid))
            elif name in seen:
                problem = f"{report.value(path, name)} is in the list twice"
                report.add(path, problem, "one of them is probably a mistake for another site", "remove or correct it")
            seen.add(name)
    validation = config.section("validation")
    floors = validation.raw.get("floors_gb_per_s")
    scopes = valid | {CROSS_SITE, NODE}
    for scope in map(str, floors) if isinstance(floors, Mapping) else ():
        if scope not in scopes:
            path = child_path(validation.path_of("floors_gb_per_s"), scope)
            breaks = "the floor would not apply to any measurement"
            report.add(path, "is neither a site nor cross-site", breaks, partial(suggest, scope, scopes))
