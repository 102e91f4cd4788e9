"""The stack kind `cluster`: machines of all sites, one head node, one cluster, and what the stack outputs."""

from __future__ import annotations

from typing import Any

import pulumi

from components.cluster.cluster import Cluster
from components.roles.order import roles
from stacks.config import StackConfig
from stacks.outputs import headline
from stacks.release import RELEASE
from stacks.sites.machines import machines
from stacks.stack_outputs import cluster_output, full_name
from stacks.tailnet.access import stack_tailnet


class ClusterStack:
    """Everything of one stack. `outputs` is what `pulumi stack output` shows."""

    def __init__(self, config: StackConfig, stack: str) -> None:
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
            measured_before=pulumi.StackReference("last-run", stack_name=full_name(stack)).get_output("validation"),
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
            "busbw_gb_per_s": validation.results.apply(headline),
            "release": RELEASE,
            # What stacks of kind pool join the cluster by.
            "head_link": link.to_outputs(),
            # Without it a backup cannot be read; the head node, which has it too, may be lost.
            **({"backup_password": password} if (password := self.cluster.backup_password) is not None else {}),
            **({"tailnet_policy": pulumi.Output.from_input(policy)} if (policy := self.tailnet.policy) else {}),
        }
