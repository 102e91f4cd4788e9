"""The stack kind `cluster`: the machines of all sites, with one head node, and the stack's outputs."""

from __future__ import annotations

import pulumi

from components.cluster.cluster import Cluster
from components.measurement_jobs.job_plans import STORAGE, TRAINING
from components.roles.network.tailnet.policy import Pods
from components.roles.order import roles
from stacks.cluster_output import cluster_output, full_name
from stacks.config import StackConfig
from stacks.look_at_clouds import Rentals, rentals, rented_output
from stacks.outputs import headline
from stacks.read_outputs import StackOutputs, read_outputs
from stacks.release import RELEASE
from stacks.sites.machines import machines
from stacks.tailnet.access import stack_tailnet


async def cluster_stack(config: StackConfig, stack: str) -> ClusterStack:
    """Return the resources and outputs of a cluster."""
    last_run = await read_outputs(full_name(stack))
    return ClusterStack(config, stack, last_run, await rentals(config, stack, last_run))


class ClusterStack:
    """A cluster's stack. `outputs` are those of `pulumi stack output`.

    last_run   the stack's own outputs before this run
    rented     sites and nodes that clouds can have now
    """

    def __init__(self, config: StackConfig, stack: str, last_run: StackOutputs, rented: Rentals) -> None:
        head, *nodes = rented.nodes
        created = machines(rented.sites, [head, *nodes], stack, rentals=rented.by_kind)
        self.tailnet = stack_tailnet(
            config.tailnet,
            roles(config),
            rented.sites,
            created.control_url,
            stack=stack,
            name=config.cluster.name,
            pods=Pods.of(nodes),
        )
        hosts = rented.connected(self.tailnet.hosts(created.hosts))
        if warning := self.tailnet.adoption_warning(hosts):
            pulumi.log.warn(warning)
        self.cluster = Cluster(
            config,
            measured_before=last_run.output("validation"),
            jobs_before={name: last_run.output(name) for name in (TRAINING, STORAGE)},
            access=self.tailnet.access,
            sites=[site.name for site in rented.sites],
            head=hosts[head.name],
            nodes=[hosts[node.name] for node in nodes],
        )
        link, validation = self.cluster.head.link, self.cluster.validation
        port = f":{config.mlflow.port}" if config.mlflow else ""
        mlflow = {"mlflow_url": pulumi.Output.concat("http://", link.address, port)} if port else {}
        self.outputs = last_run.completed(
            {
                "cluster": cluster_output(
                    config,
                    name=config.cluster.name,
                    head=head.name,
                    link=link,
                    members=[self.cluster.head, *self.cluster.nodes],
                    notes=self.cluster.head.notes,
                ),
                **self.cluster.results,
                "busbw_gb_per_s": validation.results.apply(headline),
                "release": RELEASE,
                # Stacks of kind pool use this to join the cluster.
                "head_link": link.to_outputs(),
                **{f"{name}_password": password for name, password in self.cluster.passwords.items()},
                **rented_output(created.rented, last_run),
                **mlflow,
                **({"tailnet_policy": pulumi.Output.from_input(policy)} if (policy := self.tailnet.policy) else {}),
            }
        )
