"""Decide which node of a site fetches a data set, and which nodes others can copy it from. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from components.roles.datasets.model import COMPLETE, Member, PlannedSet, Progress

Statuses = Mapping[str, Mapping[str, Progress]]


def planned(
    wanted: PlannedSet,
    before: PlannedSet | None,
    nodes: Mapping[str, Member],
    statuses: Statuses,
    alive: Collection[str],
) -> PlannedSet:
    """Return a data set with its nodes.

    before     the data set in the last plan
    statuses   each node's data sets, as it last reported them
    alive      nodes that answered lately
    """

    def progress(node: str) -> Progress | None:
        row = statuses.get(node, {}).get(wanted.name)
        return row if row and row.version == wanted.version else None

    def done(node: str) -> int:
        row = progress(node)
        return row.done if row else 0

    members = [name for name, member in sorted(nodes.items()) if wanted.wanted_at(member.site)]
    complete = [name for name in members if (row := progress(name)) and row.state == COMPLETE and name in alive]
    fetchers = {}
    for site in sorted({nodes[name].site for name in members}):
        here = [name for name in members if nodes[name].site == site]
        present = before.fetchers.get(site, "") if before else ""
        candidates = [name for name in here if name in alive]
        if present in here and (present in alive or not candidates):
            fetchers[site] = present
        elif candidates:
            # The node that has most of it loses the least.
            fetchers[site] = max(candidates, key=done)
    return replace(wanted, fetchers=fetchers, complete=complete)


def missing(one: PlannedSet, nodes: Mapping[str, Member]) -> list[str]:
    """Return the nodes that should have a data set and do not have it yet."""
    return [name for name, member in sorted(nodes.items()) if one.wanted_at(member.site) and name not in one.complete]
