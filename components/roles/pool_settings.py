"""What a pool is built from, apart from its machines: what it says itself. All else it has from its cluster."""

from collections.abc import Sequence

from components.roles.cluster_settings import ClusterSettings
from components.roles.enroot_pyxis.settings import Containers
from components.roles.gpu.settings import Fabric
from components.roles.scratch.settings import Scratch
from components.roles.tailnet.settings import PoolTailnet
from components.settings.section import Section, key, keys_of, number
from components.settings.types import FreeText, Whole
from components.settings.validation import Validation


class Spot(Section):
    """Machines that their provider takes back when it likes."""

    forget_after_minutes: Whole = number(
        "forget a node of this pool that has answered neither Slurm nor the tailnet for so many minutes: its jobs go "
        "back to the queue, and nothing of it stays on the head node; 0 forgets none",
        0,
        10080,
        breaks="nodes that were taken back would stay in the cluster",
        default=0,
    )


class PoolSettings(Section):
    """Settings of one pool."""

    tailnet: PoolTailnet = key("the pool's own way into the cluster's tailnet", default=PoolTailnet())
    fabric: Fabric = key("the machines' fast network", default=Fabric())
    containers: Containers | None = key(
        "containers for jobs, where the cluster has them: what is other on the pool's machines", default=None
    )
    scratch: Scratch = key(
        "room for jobs on a disk of each node's own, where it is another than the cluster's", default=Scratch()
    )
    validation: Validation = key("the bandwidth measurement", default=Validation())
    spot: Spot = key("machines that may be taken back at any time", default=Spot())
    repair: dict[str, FreeText] = key(
        "by a node's name, a text; change it to run all steps of that node again, as after a repair by hand",
        wants="a mapping from a node's name to a short text",
        breaks="no step would know that it has to run again",
        fix='write {c1: "2026-11-21"}',
        default={},
    )

    @property
    def said(self) -> Sequence[str]:
        """Sections that a cluster has too, and that the pool's config speaks of."""
        return sorted(keys_of(ClusterSettings).keys() & keys_of(PoolSettings).keys() & self.model_fields_set)

    def joined(self, cluster: ClusterSettings) -> ClusterSettings:
        """Return the settings of the cluster as the pool's machines have them: what the pool says itself is its own.

        A section that the cluster leaves out stays out: a pool adds no capability to a cluster.
        """
        return cluster.model_copy(
            update={name: _joined(getattr(cluster, name), getattr(self, name)) for name in self.said}
        )


def _joined(theirs: Section | None, own: Section | None) -> Section | None:
    """The cluster's section, with the keys that the pool's config has."""
    if theirs is None or own is None:
        return theirs
    return theirs.model_copy(
        update={name: getattr(own, name) for name in own.model_fields_set & keys_of(type(theirs)).keys()}
    )
