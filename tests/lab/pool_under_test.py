"""A pool stack in the lab of a cluster under test, and a cluster of its head node alone."""

from pathlib import Path
from typing import Any

from cli.pulumi.find_engine import Found
from cli.pulumi.workspace import PROJECT
from lab.identity import lab_id
from tests.lab.cluster import ClusterUnderTest, dev_config


class PoolUnderTest(ClusterUnderTest):
    """A pool in the lab of a cluster. `config` has the keys of the stack besides kind and cluster."""

    def __init__(
        self, cluster: ClusterUnderTest, suffix: str, folder: Path, found: Found, config: dict[str, Any]
    ) -> None:
        kind = {"tailrack:kind": "pool", "tailrack:cluster": cluster.stack}
        super().__init__(f"{cluster.stack}-{suffix}", folder, found, kind | config)
        self.cluster = cluster

    @property
    def lab(self) -> str:
        """The id of the cluster's lab."""
        return lab_id(PROJECT, self.cluster.stack)

    def what_slurm_says(self) -> str:
        """Return the cluster's words: the pool has no head node."""
        return self.cluster.what_slurm_says()

    def remove(self) -> None:
        """Destroy the pool; its lab is the cluster's."""
        # A destroy reads no config, and has removed the salt of its secrets if it ran before.
        for section in ("tailrack:api_keys", "tailrack:tailnet"):
            self.config.pop(section, None)
        deployment = self.deployment()
        deployment.destroy()
        deployment.workspace.forget()


def bring_up_head_alone(made: ClusterUnderTest) -> ClusterUnderTest:
    """Bring up a head node that computes, without other nodes."""
    made.config = dev_config()
    made.config["tailrack:sites"] = [{"name": "cloud-a", "kind": "lab", "fabric": "tailnet"}]
    made.up_ok()
    return made
