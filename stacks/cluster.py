"""The stack kind `cluster`: machines of all sites, one head node, one cluster, and what the stack outputs."""

from __future__ import annotations

from typing import Any

import pulumi

from components.cluster.cluster import Cluster
from components.roles.order import roles
from stacks.config import StackConfig
from stacks.outputs import headline
from stacks.read_outputs import StackOutputs, read_outputs
from stacks.release import RELEASE
from stacks.sites.machines import machines
from stacks.stack_outputs import cluster_output, full_name
from stacks.tailnet.access import stack_tailnet


async def cluster_stack(config: StackConfig, stack: str) -> ClusterStack:
    """Return everything of a cluster."""
    return ClusterStack(config, stack, await read_outputs(full_name(stack)))


class ClusterStack:
    """Everything of one stack. `outputs` is what `pulumi stack output` shows.

    before   the stack's own outputs of the run before this one
    """

    def __init__(self, config: StackConfig, stack: str, before: StackOutputs) -> None:
        head, *nodes = config.nodes()
        made = machines(config.sites, [head, *nodes], stack)
        self.tailnet = stack_tailnet(
            config.tailnet, roles(config), config.sites, made.control_url, stack=stack, name=config.cluster.name
        )
        hosts = self.tailnet.hosts(made.hosts)
        if said := self.tailnet.about_owners(hosts):
            pulumi.log.warn(said)
        self.cluster = Cluster(
            config,
            measured_before=before.output("validation"),
            trained_before=before.output("training"),
            access=self.tailnet.access,
            sites=[site.name for site in config.sites],
            head=hosts[head.name],
            nodes=[hosts[node.name] for node in nodes],
        )
        link, validation = self.cluster.head.link, self.cluster.validation
        self.outputs: dict[str, Any] = {
            "cluster": cluster_output(
                config,
                name=config.cluster.name,
                head=head.name,
                link=link,
                members=[self.cluster.head, *self.cluster.nodes],
                notes=self.cluster.head.notes,
            ),
            "validation": validation.results,
            **({"training": training.results} if (training := self.cluster.training) else {}),
            "busbw_gb_per_s": validation.results.apply(headline),
            "release": RELEASE,
            # What stacks of kind pool join the cluster by.
            "head_link": link.to_outputs(),
            **{f"{name}_password": password for name, password in self.cluster.passwords.items()},
            **self._mlflow(config),
            **({"tailnet_policy": pulumi.Output.from_input(policy)} if (policy := self.tailnet.policy) else {}),
        }

    def _mlflow(self, config: StackConfig) -> dict[str, Any]:
        """Where MLflow answers; nothing where the config has none."""
        if config.mlflow is None:
            return {}
        return {"mlflow_url": pulumi.Output.concat("http://", self.cluster.head.link.address, f":{config.mlflow.port}")}
