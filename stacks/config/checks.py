"""Checks between sections: duplicate names, invalid references, a cluster without nodes."""

from collections.abc import Sequence

from components.roles.access.users.settings import check_users
from components.roles.slurm.slurm.settings import Partition
from components.roles.slurm.slurm.slurm_conf import MAX_NODE_COUNT
from components.settings.money import check_prices
from components.settings.problems import ROOT, Report, Stack, show_name
from components.settings.rules import check_known, check_secrets, check_unique
from components.settings.section import located
from components.settings.types import GPUS_FOUND
from stacks.config.model import NO_HEAD, AnyConfig, PoolConfig, StackConfig
from stacks.sites import KINDS
from stacks.sites.kind import NodeSpec, Site
from stacks.sites.rented.model import check_api_keys


def check(config: AnyConfig, report: Report) -> None:
    """Report every conflict between values of the config."""
    nodes, head = (config.all_nodes(), NO_HEAD) if isinstance(config, PoolConfig) else (config.nodes(), config.head)
    if len(nodes) > MAX_NODE_COUNT:
        breaks = "slurmctld registers at most this many (MaxNodeCount)"
        report.add(ROOT + "sites", f"more than {MAX_NODE_COUNT} nodes", breaks, "write smaller pools or fewer hosts")
    sections = [section for section, _ in located(config, ROOT)]
    stack = Stack(
        config,
        head,
        sections,
        nodes,
        {site.name for site in config.sites},
        {kind: [site for site in config.sites if site.kind == kind] for kind in KINDS},
        () if isinstance(config, PoolConfig) else (config.storage.path, config.storage.mount),
        {host.user: report.place(host) for site in config.sites for host in getattr(site, "hosts", ())},
        [site.name for site in config.sites if not KINDS[site.kind].lists_head],
        any(KINDS[site.kind].brings_tailnet for site in config.sites),
    )
    check_secrets(sections, report)
    _check_duplicate_nodes(config, nodes, report)
    _check_partitions(config, nodes, report)
    _check_logins(config, nodes, report)
    check_prices(sections, config.currency, report)
    names, problem = {node.name for node in nodes}, "is not a node of this stack"
    repaired = config if isinstance(config, PoolConfig) else config.cluster
    check_known(repaired, "repair", names, problem, "nothing would be repaired", report)
    renting = [name for name, kind in KINDS.items() if kind.rents]
    check_api_keys(config, config.api_keys, {site.kind for site in config.sites}, renting, report)
    if isinstance(config, StackConfig):
        if config.head.site in stack.sites:
            _check_some_node_computes(config, nodes, report)
        if config.backup is None and config.head.restore_from is not None:
            problem, fix = "is set without a section backup", "write tailrack:backup as it was for the backup"
            report.add((config.head, "restore_from"), problem, "the place of the backup would be unknown", fix)
        check_users(stack, report)
        breaks = "a job could get either"
        check_unique(config.datasets, "name", "is the name of two data sets", breaks, report)
    for section in sections:
        section.check(stack, report)


def _place_of(config: AnyConfig, node: NodeSpec, report: Report) -> str:
    """Return the path of the name that makes a node: of a pool, a host, or the head node."""
    if node.source is not None:
        return report.at(node.source, "name")
    return report.at(config.head, "name") if isinstance(config, StackConfig) else ROOT


def _check_duplicate_nodes(config: AnyConfig, nodes: Sequence[NodeSpec], report: Report) -> None:
    first: dict[str, NodeSpec] = {}
    duplicates: dict[tuple[str, str], list[str]] = {}
    twice = len({site.name for site in config.sites}) < len(config.sites)
    for node in nodes:
        holder = first.setdefault(node.name, node)
        # Two sites with the head node's site name make it twice; the second site is reported.
        made = [found for found in (node, holder) if found.source]
        if holder is not node and len(made) > twice:
            place = _place_of(config, holder, report).removeprefix(ROOT).removesuffix(".name")
            duplicates.setdefault((_place_of(config, node, report), place), []).append(node.name)
    for (path, place), names in duplicates.items():
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        problem = f"makes node {show_name(names[0])}{more} a second time (also in {place})"
        report.add(path, problem, "Slurm would drain one of the two", "rename one of them")


def _check_logins(config: AnyConfig, nodes: Sequence[NodeSpec], report: Report) -> None:
    """Report log-in nodes that cannot be any, or whose GPUs no job could use."""
    for node in nodes:
        if not node.login or node.source is None:
            continue
        elastic = isinstance(config, PoolConfig) and config.elastic
        for is_wrong, problem, breaks, fix in (
            (node.is_head, "the head node", "users log in there already, and it runs no jobs by default", "delete it"),
            (node.pod, "a pod", "a pod has neither the share nor log-ins of users", "delete it"),
            (node.gpu, "a machine with GPUs", "no job could use them", "delete one of login and gpu"),
            (elastic, "a machine of an elastic pool", "jobs could not bring it", "write it in another stack"),
        ):
            if is_wrong:
                report.add((node.source, "login"), f"is true for {problem}", breaks, fix)


def _check_partitions(config: AnyConfig, nodes: Sequence[NodeSpec], report: Report) -> None:
    # `all` is not among these, because no name may be `all`.
    names = {GPUS_FOUND: "the partition of nodes whose GPUs the config does not name"}
    names |= {node.gpu.kind: f"the partition of the {node.gpu.kind} GPUs" for node in nodes if node.gpu}
    extras = config.slurm.partitions if isinstance(config, StackConfig) else ()
    sections: list[Site | Partition] = [*config.sites, *extras]
    for section in sections:
        if section.name in names:
            problem = f"names a partition a second time (it is {names[section.name]})"
            report.bad((section, "name"), problem, "slurmctld would reject its config", "write another name")
        names.setdefault(section.name, f"the partition of {report.place(section)}")
    for path, name in {_place_of(config, node, report): node.name for node in nodes if node.name in names}.items():
        problem = f"makes node {show_name(name)}, which has the name of a partition ({names[name]})"
        report.add(path, problem, "the node could not register with slurmctld", "rename one of them")


def _check_some_node_computes(config: StackConfig, nodes: Sequence[NodeSpec], report: Report) -> None:
    """Report a cluster in which no node runs jobs, and one in which none is in partition `all`."""
    computing = {node.site for node in nodes if node.compute}
    outside = [site for site in config.sites if not site.in_all]
    if not computing:
        fix = "add a pool or a host, or write compute: true and accept_root_risk: true in tailrack:head"
        report.add(ROOT + "sites", "no node runs jobs", "every job would wait forever", fix)
    elif outside and not computing - {site.name for site in outside}:
        problem, breaks = "leaves no node that runs jobs in partition all", "jobs without partition would wait forever"
        fix = "remove it from one of the sites whose nodes run jobs"
        report.add((outside[0], "in_all"), problem, breaks, fix)
