"""Checks between sections: names that must not meet, references that lead nowhere, a cluster without a node."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, islice

from components.roles.accounting.settings import check_accounting
from components.roles.backup.settings import HEAD, LISTED, MADE, check_backup
from components.roles.enroot_pyxis.settings import check_containers
from components.roles.health.settings import Health
from components.roles.mlflow.settings import check_mlflow
from components.roles.monitoring.settings import check_monitoring
from components.roles.nfs_exports.settings import Storage, check_storage
from components.roles.scratch.settings import check_scratch
from components.roles.slurm.files import MAX_NODE_COUNT
from components.roles.slurm.settings import check_slurm
from components.roles.tailnet.checks import Sites, check_tailnet
from components.roles.users.settings import check_users
from components.settings.cluster import COMPUTES, Head
from components.settings.draft import Draft, meant
from components.settings.money import too_much
from components.settings.problems import ROOT, Report, bare, below, listed
from components.settings.section import keys_of
from components.settings.training import check_training
from components.settings.types import CROSS_SITE, GPUS_FOUND, NODE
from components.settings.validation import check_validation
from stacks.config.model import PoolConfig
from stacks.sites import KINDS
from stacks.sites.kind import Claim, Kind, NodeSpec, Site

# Keys of the section validation that are of CPUs, which validation.nccl has for GPUs.
_OF_CPUS = frozenset({"min_bytes", "max_bytes", "factor", "iterations", "warmup", "gate_bytes"})


def check(config: Draft, report: Report) -> None:
    """Report every clash between values of the config."""
    pool = config.model is PoolConfig
    sites, head = config.items("sites"), Draft(ROOT + "head", Head) if pool else config.section("head")
    claims = (claim for site in sites if (kind := _kind(site)) for claim in kind.claims(site, head))
    listed_nodes = [*islice(claims, MAX_NODE_COUNT)]
    if next(claims, None) is not None:
        breaks = "slurmctld registers no more of them (MaxNodeCount)"
        report.add(ROOT + "sites", f"more than {MAX_NODE_COUNT} nodes", breaks, "write smaller pools, or fewer hosts")
    nodes = [*_head(head, sites), *listed_nodes]
    _check_twice(nodes, report)
    _check_partitions(config, nodes, report)
    _check_site_names(config, head, report)
    _check_repair(config if pool else config.section("cluster"), nodes, report)
    _check_measured(config.section("validation"), nodes, report)
    _doubt_sizes(config.section("validation"), nodes, report)
    _check_prices(config, sites, report)
    if isinstance(relay := config.section("tailnet").values.get("relay"), Draft):
        _check_relay(relay, nodes, report)
    for word, kind in KINDS.items():
        kind.check([site for site in sites if site.text("kind") == word], head, report)
    storage = Draft(ROOT + "storage", Storage) if pool else config.section("storage")
    if not pool:
        logins = {node.login: node.place for node in listed_nodes if node.login is not None}
        _check_somewhere_to_run(sites, nodes, report)
        check_users(config.items("users"), logins, report)
        check_storage(storage, logins, report)
        check_slurm(config.section("slurm"), report)
        check_accounting(config.section("accounting"), config.items("users"), config.section("slurm"), report)
        if isinstance(monitoring := config.values.get("monitoring"), Draft):
            check_monitoring(monitoring, report)
        if isinstance(mlflow := config.values.get("mlflow"), Draft):
            check_mlflow(mlflow, monitoring if isinstance(monitoring, Draft) else None, report)
    share = [folder for name in ("path", "mount") if isinstance(folder := storage.value(name), str)]
    health = Draft(ROOT + "health", Health) if pool else config.section("health")
    check_scratch(config.section("scratch"), health, share, report)
    if config.raw.get("containers") is not None:
        known = {name for site in sites if (name := site.text("name")) is not None}
        check_containers(config.section("containers"), known, share, report)
    elif not pool:
        _check_no_containers(config.section("validation").section("nccl"), report)
    if not pool:
        _check_backup(config, sites, head, storage, report)
    check_tailnet(config.section("tailnet"), _to_the_tailnet(sites), report)
    check_validation(config.section("validation"), report)
    _check_training(config.section("validation"), pool, config.raw.get("containers") is not None, report)


def _kind(site: Draft) -> Kind[Site, NodeSpec] | None:
    return KINDS.get(site.text("kind") or "")


def _to_the_tailnet(sites: Sequence[Draft]) -> Sites:
    kinds = [(site.text("name") or "", _kind(site)) for site in sites]
    return Sites(
        known=bool(kinds) and all(kind for _, kind in kinds),
        brings=any(kind.brings_tailnet for _, kind in kinds if kind),
        makes=[name for name, kind in kinds if kind and not kind.lists_head],
    )


def _head(head: Draft, sites: Sequence[Draft]) -> list[Claim]:
    """The head node, unless it is one of the machines that its site lists."""
    here = [_kind(site) for site in sites if site.text("name") == head.text("site")]
    if not head.raw or any(kind and kind.lists_head for kind in here):
        return []
    # At a site that there is not, it may be one of those that another one lists.
    name = head.text("name") if here else None
    return [Claim(name, head.at("name"), head.value("compute") is not False)]


def _check_twice(nodes: Sequence[Claim], report: Report) -> None:
    first: dict[str, Claim] = {}
    again: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        if node.name is not None and (holder := first.setdefault(node.name, node)) is not node:
            again.setdefault((node.path, holder.place), []).append(node.name)
    for (path, place), names in again.items():
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        what = f"makes node {bare(names[0])}{more} a second time (also in {place})"
        report.add(path, what, "Slurm would drain one of the two", "give one of them another name")


def _check_partitions(config: Draft, nodes: Sequence[Claim], report: Report) -> None:
    # Without `all`, which no name may be.
    names = {GPUS_FOUND: "the partition of nodes whose GPUs the config does not name"}
    names |= {node.gpu.kind: f"the partition of the {node.gpu.kind} GPUs" for node in nodes if node.gpu}
    sites, extras = config.items("sites"), config.section("slurm").items("partitions")
    for section, word in [*((site, "site") for site in sites), *((extra, "partition") for extra in extras)]:
        name, path = section.text("name"), section.at("name")
        if name is None:
            continue
        if name in names:
            what = f"{report.value(path, name)} names a partition a second time (it is {names[name]})"
            report.add(path, what, "slurmctld would refuse its config", f"give the {word} another name")
        names.setdefault(name, f"the partition of {section.path.removeprefix(ROOT)}")
    for path, name in {node.path: node.name for node in nodes if node.name is not None and node.name in names}.items():
        what = f"makes node {bare(name)}, which has the name of a partition ({names[name]})"
        report.add(path, what, "the node could not register with slurmctld", "give one of them another name")


def _check_repair(cluster: Draft, nodes: Sequence[Claim], report: Report) -> None:
    known = {node.name for node in nodes if node.name is not None}
    asked = cluster.raw.get("repair")
    for name in map(str, asked) if isinstance(asked, Mapping) and len(known) == len(nodes) else ():
        if name not in known:
            at = below(cluster.at("repair"), name)
            report.add(at, "is not a node of this stack", "nothing would be repaired", meant(name, known))


def _check_measured(validation: Draft, nodes: Sequence[Claim], report: Report) -> None:
    known = {node.name for node in nodes if node.name is not None and node.compute}
    for section in (validation, validation.section("training")):
        asked = section.values.get("nodes")
        for index, name in enumerate(asked if isinstance(asked, tuple) and all(node.name for node in nodes) else ()):
            if name not in known:
                at = below(section.at("nodes"), index)
                what = f"{report.value(at, name)} is not a node that runs jobs"
                report.add(at, what, "it would not be measured", partial(meant, name, known))


def _check_prices(config: Draft, sites: Sequence[Draft], report: Report) -> None:
    """Report prices that no machine has in the stack's currency: cents, most often, or another currency's."""
    for priced in chain.from_iterable(
        (site, site.section("head"), *site.items("pools"), *site.items("hosts")) for site in sites
    ):
        price = priced.values.get("price_per_hour")
        if isinstance(price, float) and (wrong := too_much(price, config.value("currency"))):
            fix = "write the price of one machine for one hour, with a point before the cents"
            report.add(priced.at("price_per_hour"), wrong, "every sum with it would be wrong", fix)


def _doubt_sizes(validation: Draft, nodes: Sequence[Claim], report: Report) -> None:
    """Warn about settings of the CPU measurement when every node that runs jobs has GPUs."""
    said = sorted(_OF_CPUS & validation.raw.keys())
    computing = [node for node in nodes if node.compute]
    if said and computing and all(node.gpu for node in computing):
        text = "all nodes that run jobs have GPUs, of which this changes nothing; write it in validation.nccl"
        report.warn(validation.at(said[0]), text)


def _check_training(validation: Draft, pool: bool, containers: bool, report: Report) -> None:
    if validation.raw.get("training") is None:
        return
    if pool:
        what, breaks = "is in a stack of kind pool", "the benchmark is of the cluster's own nodes"
        report.add(validation.at("training"), what, breaks, "write it in the cluster's stack, and take it out here")
    else:
        check_training(validation.section("training"), containers, report)


def _check_no_containers(nccl: Draft, report: Report) -> None:
    if image := nccl.value("image"):
        breaks = "the cluster has no containers, and the measurement could not run in one"
        at, fix = nccl.at("image"), "write a section tailrack:containers, or take the image out"
        report.add(at, f"{report.value(at, image)} without a section containers", breaks, fix)


def _check_backup(config: Draft, sites: Sequence[Draft], head: Draft, storage: Draft, report: Report) -> None:
    if config.raw.get("backup") is not None:
        backup = config.section("backup")
        whose = _machines(sites, head, backup.value("port"))
        check_backup(backup, whose, {name: storage.value(name) for name in ("path", "mount")}, report)
    elif head.raw.get("restore_from") is not None:
        at = head.at("restore_from")
        what, breaks = "is there without a section backup", "nobody knows where the backup is"
        report.add(at, what, breaks, "write tailrack:backup, as it was when the backup was made")


def _machines(sites: Sequence[Draft], head: Draft, port: object) -> dict[str, str]:
    """Whose machines are, by name and by address; of nodes those addresses that are reached at a port."""
    found: dict[str, str] = {}
    for site in sites:
        kind = _kind(site)
        for claim in islice(kind.claims(site, head), MAX_NODE_COUNT) if kind else ():
            if claim.name is not None:
                found[claim.name] = LISTED if kind and kind.lists_head else MADE
        for host in site.items("hosts"):
            is_head, address = host.text("name") == head.text("name"), host.text("address")
            if address and (is_head or host.value("port") == port):
                found[address] = HEAD if is_head else found.get(address, LISTED)
    return {**found, head.text("name") or "": HEAD}


def _check_relay(relay: Draft, nodes: Sequence[Claim], report: Report) -> None:
    name, known = relay.text("node"), {node.name for node in nodes if node.name is not None}
    if name is not None and len(known) == len(nodes) and name not in known:
        at = relay.at("node")
        what = f"{report.value(at, name)} is not a node of this stack"
        report.add(at, what, "nothing would be relayed", partial(meant, name, known))


def _check_somewhere_to_run(sites: Sequence[Draft], nodes: Sequence[Claim], report: Report) -> None:
    lists = {name for kind in KINDS.values() for name, key in keys_of(kind.model).items() if key.many}
    read = all(_kind(site) and lists & site.raw.keys() <= site.values.keys() for site in sites)
    if sites and read and not any(node.compute or node.name is None for node in nodes):
        fix = f"add a pool or a host, or have the head node compute (compute: {COMPUTES} in tailrack:head)"
        report.add(ROOT + "sites", "no node runs jobs", "every job would wait for ever", fix)


def _check_site_names(config: Draft, head: Draft, report: Report) -> None:
    names = [site.text("name") for site in config.items("sites")]
    known = {name for name in names if name is not None}
    if not known or None in names:  # then nothing can be said to be missing
        return
    no_site = f"is not a site (sites are {listed(known)})"
    if (place := head.text("site")) is not None and place not in known:
        at = head.at("site")
        report.add(
            at, f"{report.value(at, place)} {no_site}", "the head node would be nowhere", partial(meant, place, known)
        )
    for partition in config.section("slurm").items("partitions"):
        seen: set[str] = set()
        sites = partition.values.get("sites", ())
        for index, name in enumerate(sites if isinstance(sites, tuple) else ()):
            at = below(partition.at("sites"), index)
            if name not in known:
                what = f"{report.value(at, name)} {no_site}"
                report.add(at, what, "slurmctld would refuse its config", partial(meant, name, known))
            elif name in seen:
                what = f"{report.value(at, name)} is in the list twice"
                report.add(at, what, "one of the two was meant to be another site", "take it out")
            seen.add(name)
    validation = config.section("validation")
    floors = validation.raw.get("floors_gb_per_s")
    scopes = known | {CROSS_SITE, NODE}
    for scope in map(str, floors) if isinstance(floors, Mapping) else ():
        if scope not in scopes:
            at = below(validation.at("floors_gb_per_s"), scope)
            breaks = "the floor would be held against nothing"
            report.add(at, "is neither a site nor cross-site", breaks, partial(meant, scope, scopes))
