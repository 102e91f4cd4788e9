"""The storage measurement: after the other measurements, one job measures the share and scratch on each node with fio.

It runs again if its inputs change, like the measurement of a scope (nccl_validation.py), and uses the same script.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

import pulumi

from components.cluster.head_link import HeadLink
from components.cluster.job_measurement import Member, chosen_nodes, measuring_step
from components.measurement import storage
from components.settings.storage_measurement import StorageMeasurement as Settings
from components.settings.storage_measurement import floors_at
from components.settings.validation import Validation
from components.validation.storage_figures import FIGURES, LATENCY
from components.validation.storage_verdict import judge_storage

NAME = "storage"


class StorageMeasurement(pulumi.ComponentResource):
    """The storage measurement of a cluster.

    results   Output[dict]: the result of components.validation.storage_verdict.judge_storage, with `retries`

    members     the nodes that run jobs
    after       results of the other measurements, which run first
    before      `results` of the previous run, or None
    """

    def __init__(
        self,
        link: HeadLink,
        members: Sequence[Member],
        validation: Validation,
        settings: Settings,
        after: pulumi.Output[Any],
        before: pulumi.Output[Any],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        targets = storage.targets(link.settings)
        in_state = _floors_in_state(settings, targets, {node.host.site for node in members})
        super().__init__("tailrack:validation:StorageMeasurement", NAME, in_state, opts)
        nodes = chosen_nodes(members, settings.nodes, validation)
        sites = {name: node.host.site for name, node in nodes.items()}
        reported = measuring_step(
            link,
            nodes,
            validation,
            name=NAME,
            scope=storage.SCOPE,
            script=storage.script(),
            settings={
                "size": settings.size,
                "seconds": settings.seconds,
                "version": storage.VERSION,
                "targets": [asdict(target) for target in targets],
            },
            plan=lambda nodes: storage.storage_plan(nodes, targets, settings),
            job=storage.storage_job(storage.job_minutes(len(nodes), targets, settings)),
            run_limit=storage.run_seconds(len(nodes), targets, settings),
            after=after,
            before=before,
            parent=self,
        )
        paths = {
            name: {target.name: target.path for target in targets if target.is_at(site)} for name, site in sites.items()
        }
        floors = {
            name: {target: floors_at(settings.floors, target, sites[name]) for target in paths[name]} for name in sites
        }
        self.results: pulumi.Output[dict[str, Any]] = reported.apply(
            lambda resolved: {
                **judge_storage(resolved["report"], paths, floors, settings.size),
                "retries": resolved["retries"],
            },
        )
        self.register_outputs({"results": self.results})


def _floors_in_state(
    settings: Settings, targets: Sequence[storage.Target], sites: Collection[str]
) -> dict[str, dict[str, float] | list[str]]:
    """Return the floors for the state, so that cli/checks finds one that was removed or lowered.

    `limits` has those whose higher values are weaker.
    """
    floors: dict[str, float] = {}
    limits: dict[str, float] = {}
    places = [(target.name, site) for target in targets for site in sorted(sites) if target.is_at(site)]
    for target, site in places:
        for name, value in floors_at(settings.floors, target, site).items():
            (limits if name == LATENCY else floors)[_scope(target, site, name)] = value
    scopes = [_scope(target, site, name) for target, site in places for name in FIGURES]
    return {"floors": floors, "limits": limits, "scopes": scopes}


def _scope(target: str, site: str, figure: str) -> str:
    return f"{target} at {site}: {figure}"
