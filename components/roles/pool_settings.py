"""What a pool is built from, apart from its machines: what it says itself. All else it has from its cluster."""

from components.roles.cluster_settings import ClusterSettings
from components.roles.enroot_pyxis.settings import Containers
from components.roles.gpu.settings import Fabric
from components.roles.tailnet.settings import PoolTailnet
from components.settings.cluster import Cluster
from components.settings.section import Section, key, number
from components.settings.types import FreeText, Whole
from components.settings.validation import Validation


class Spot(Section):
    """Machines that their provider takes back when it likes."""

    forget_after_minutes: Whole = number(
        "forget a node of this pool that has answered neither Slurm nor the tailnet for so many minutes: its jobs go "
        "back to the queue, and nothing of it stays on the head node; 0 forgets none",
        0,
        10080,
        "nodes that were taken back would stay in the cluster",
        0,
    )


class PoolSettings(Section):
    """Settings of one pool."""

    tailnet: PoolTailnet = key("the pool's own way into the cluster's tailnet", default=PoolTailnet())
    fabric: Fabric = key("the machines' fast network", default=Fabric())
    containers: Containers | None = key(
        "as the cluster's: containers for jobs, or left out where it has none", default=None
    )
    validation: Validation = key("the bandwidth measurement", default=Validation())
    spot: Spot = key("machines that may be taken back at any time", default=Spot())
    repair: dict[str, FreeText] = key(
        "by a node's name, a text; change it to run all steps of that node again, as after a repair by hand",
        "a mapping from a node's name to a short text; no step would know that it has to run again; write "
        '{c1: "2026-11-21"}',
        default={},
    )

    def for_roles(self) -> ClusterSettings:
        """What roles are made of. What is the cluster's in it is nobody's: the values come by the HeadLink."""
        names = ClusterSettings.model_fields
        unknown = {"cluster": Cluster.model_construct(name=""), "head": None, "users": ()}
        own = {"fabric": self.fabric, "containers": self.containers, "validation": self.validation}
        rest = {name: info.get_default() for name, info in names.items() if name not in {**unknown, **own}}
        return ClusterSettings.model_construct(None, **unknown, **own, **rest)
