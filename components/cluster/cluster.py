"""A cluster: a head node, its compute nodes and their measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pulumi

from components.cluster.compute_node import ComputeNode
from components.cluster.head_link import HeadLink
from components.cluster.head_node import HeadNode
from components.cluster.job_measurement import JobMeasurement
from components.cluster.nccl_validation import NcclValidation
from components.cluster.secrets import HEADER_NAMES, MungeKey, passwords
from components.cluster.tailnet_access import NO_KEY, TailnetAccess
from components.host import Host
from components.measurement_jobs.job_plans import job_plans
from components.roles.cluster_settings import ClusterSettings
from components.roles.network.tailnet.policy import relay_port
from components.roles.order import roles
from components.roles.role import header_of, secrets_of
from components.steps.step import REPAIR
from components.steps.values import as_output

# Header values of nodes that belong to no pool.
NO_POOL = {"pool_owner": "", "pool_forget_after_minutes": 0}


class Cluster(pulumi.ComponentResource):
    """A Slurm cluster over a tailnet.

    head, nodes    the components of its machines
    validation     the component of the measurement; `validation.results` by scope
    results        results of all measurements, by name

    passwords      passwords that people need, secret, by the service's name

    measured_before   results of the measurements in the previous run
    jobs_before       results of the measurements by one job (job_plans.py) in the previous run, by name
    access            access to the tailnet
    """

    def __init__(
        self,
        settings: ClusterSettings,
        *,
        sites: Sequence[str],
        head: Host,
        nodes: Sequence[Host],
        measured_before: pulumi.Output[Any],
        jobs_before: Mapping[str, pulumi.Output[Any]] | None = None,
        access: TailnetAccess = NO_KEY,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("tailrack:cluster:Cluster", settings.cluster.name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        cluster_roles = roles(settings)
        munge = MungeKey(settings.cluster.munge_generation, opts=child)
        values: dict[str, pulumi.Input[Any]] = header_of(cluster_roles)
        values |= NO_POOL
        values["tailnet_control_url"] = access.control_url
        secrets = {
            "munge_key": munge.key,
            "tailnet_auth_key": pulumi.Output.secret(access.auth_key),
            **{name: pulumi.Output.secret(text) for name, text in secrets_of(cluster_roles).items()},
        }

        self.passwords = passwords(settings, child)
        secrets |= {HEADER_NAMES[name]: password for name, password in self.passwords.items()}

        def values_of(host: Host) -> dict[str, pulumi.Input[Any]]:
            return {**values, REPAIR: settings.cluster.repair.get(host.name, "")}

        head, *nodes = [replace(host, relay_port=relay_port(settings.tailnet, host.name)) for host in (head, *nodes)]

        def make(node: Host, link: HeadLink, *, serves: bool = False) -> ComputeNode:
            return ComputeNode(node, link, cluster_roles, values_of(node), secrets, access, opts=child, serves=serves)

        storage = next((node for node in nodes if node.name == settings.storage.node), None)
        self.head = HeadNode(
            head,
            settings,
            munge,
            cluster_roles,
            values_of(head),
            secrets,
            access,
            sites=sites,
            pods=any(node.pod for node in nodes),
            storage=partial(make, storage, serves=True) if storage else None,
            opts=child,
        )
        link, server = self.head.link, self.head.storage
        if server:
            server.join(link)
            # It leaves after the others.
            link = replace(link, ready=server.registered)
        self.nodes = [server if server and node is storage else make(node, link) for node in nodes]
        self.head.services()
        measured = [node for node in self.nodes if node.host.is_measured]
        members: list[HeadNode | ComputeNode] = [*([self.head] if settings.head.compute else []), *measured]
        self.validation = NcclValidation(self.head.link, members, settings.validation, measured_before, opts=child)
        self.results = {"validation": self.validation.results}
        for name, job in job_plans(settings, {node.host.name: node.host.site for node in members}).items():
            # One measurement after another, because each of them may slow the others down.
            after = as_output(dict(self.results), dict)
            before = (jobs_before or {}).get(name, pulumi.Output.from_input(None))
            measured_by_job = JobMeasurement(name, job, self.head.link, members, after, before, opts=child)
            self.results[name] = measured_by_job.results
        self.register_outputs({"control_address": self.head.link.address})
