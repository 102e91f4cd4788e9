"""The stack config as one model: the settings of the cluster, and the sites that its machines stand at."""

from components.cluster_settings import ClusterSettings
from components.settings.section import key
from stacks.config.allow import FindingName, allow_key
from stacks.sites import KINDS
from stacks.sites.kind import NodeSpec, Site

ALL = "all"  # the default partition


class StackConfig(ClusterSettings):
    """A stack's whole config, checked: names are unique, references lead somewhere, files are there."""

    sites: tuple[Site, ...] = key(
        "where the machines are",
        "a list of one site or more; the cluster would have no machines; write a site, as in Pulumi.dev.yaml",
        min_length=1,
    )
    allow: tuple[FindingName, ...] = allow_key()

    def nodes(self) -> list[NodeSpec]:
        """Every node of the stack, the head first, then by site in the order of the config."""
        nodes = [node for site in self.sites for node in KINDS[site.kind].nodes(site, self.head)]
        return sorted(nodes, key=lambda node: not node.is_head)

    def partitions(self) -> tuple[str, ...]:
        """Names of the partitions: `all` (the default), one per site, the extra ones, one per GPU kind."""
        kinds = sorted({node.gpu.kind for node in self.nodes() if node.gpu and node.compute})
        extras = tuple(partition.name for partition in self.slurm.partitions)
        return (ALL, *(site.name for site in self.sites), *extras, *kinds)
