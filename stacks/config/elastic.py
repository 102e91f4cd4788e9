"""Checks of an elastic pool that need its nodes and their prices."""

from collections.abc import Iterator

from components.roles.slurm.settings import Elastic
from components.settings.problems import ROOT, Problem
from stacks.config.model import PoolConfig

_PATH = f"{ROOT}elastic"


def elastic_problems(config: PoolConfig) -> Iterator[Problem]:
    """Yield the conflicts of the section `elastic` with other keys."""
    elastic = config.elastic
    if elastic is None:
        return
    if config.idle_limit_minutes is not None:
        problem = "is set for an elastic pool; make reap would destroy the placeholders that bring machines"
        yield Problem(f"{ROOT}idle_limit_minutes", f"{problem}; remove it: elastic.idle_minutes returns idle machines")
    nodes = len(config.all_nodes())
    if elastic.max is not None and elastic.max > nodes:
        problem = f"{elastic.max} is more than the {nodes} node(s) of tailrack:sites"
        yield Problem(f"{_PATH}.max", f"{problem}; the others could not be rented; write {nodes}, or larger pools")
    if elastic.cpus % elastic.threads_per_core:
        problem = f"{elastic.cpus} is not a multiple of threads_per_core ({elastic.threads_per_core})"
        yield Problem(f"{_PATH}.cpus", f"{problem}; no machine could match it; correct one of them")
    yield from _price_problems(config, elastic)
    allowed = len(config.nodes())
    if 0 < allowed < elastic.min:
        problem = f"{elastic.min} is more than the {allowed} machine(s) that may be rented"
        yield Problem(f"{_PATH}.min", f"{problem}; they could not stay; write {allowed} or less")


def _price_problems(config: PoolConfig, elastic: Elastic) -> Iterator[Problem]:
    limit, path = elastic.max_price_per_hour, f"{_PATH}.max_price_per_hour"
    if limit is None:
        return
    unpriced = [node.name for node in config.all_nodes() if node.price_per_hour is None and not node.cloud_has_price]
    if unpriced:
        problem = f"is set, and node {unpriced[0]} has no price; the limit could not be kept"
        yield Problem(path, f"{problem}; write price_per_hour at its site")
    elif not config.nodes():
        price = config.all_nodes()[0].price
        problem = f"{limit:g} is less than the price of one machine ({price}); jobs could rent nothing"
        yield Problem(path, f"{problem}; write a higher limit")
