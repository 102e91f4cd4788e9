"""Settings of a pool without its machines. A pool takes all other settings from its cluster."""

from collections.abc import Sequence

from components.roles.cluster_settings import ClusterSettings
from components.roles.containers.enroot_pyxis.settings import Containers
from components.roles.network.fabric.settings import Fabric
from components.roles.network.tailnet.settings import PoolTailnet
from components.roles.slurm.slurm.settings import Elastic
from components.roles.storage.mounts.settings import PoolStorage
from components.roles.storage.scratch.settings import Scratch
from components.settings.section import Section, key, keys_of
from components.settings.types import FreeText, Whole
from components.settings.validation import Validation


class Spot(Section):
    """Machines that their provider can take back at any time."""

    forget_after_minutes: Whole = key(ge=0, le=10080, default=0)
    """Forget a node of this pool after so many minutes without an answer to Slurm or the tailnet: its jobs are
    requeued, and the head node keeps nothing of it; 0: never."""


class PoolSettings(Section):
    """Settings of one pool."""

    tailnet: PoolTailnet = PoolTailnet()
    """The pool's access to the cluster's tailnet."""
    fabric: Fabric = Fabric()
    """The machines' fast network."""
    containers: Containers | None = None
    """Containers for jobs, if the cluster has them: settings that differ on the pool's machines."""
    storage: PoolStorage = PoolStorage()
    """Other file systems on the pool's machines."""
    scratch: Scratch = Scratch()
    """Job scratch space on a local disk of each node, if it differs from the cluster's."""
    validation: Validation = Validation()
    """The bandwidth measurement."""
    spot: Spot = Spot()
    """Machines that the provider can take back at any time."""
    elastic: Elastic | None = None
    """Machines that exist only while jobs need them."""
    repair: dict[str, FreeText] = key(
        "a mapping from a node's name to a short text", 'write {c1: "2026-11-21"}', default={}
    )
    """A text per node name; change a node's text to run all its steps again, for example after a manual repair."""

    @property
    def overrides(self) -> Sequence[str]:
        """Return the cluster's sections that the pool's config also has."""
        return sorted(keys_of(ClusterSettings).keys() & keys_of(PoolSettings).keys() & self.model_fields_set)

    def joined(self, cluster: ClusterSettings) -> ClusterSettings:
        """Return the cluster's settings for the pool's machines, with the keys that the pool overrides.

        A section that the cluster does not have stays absent: a pool adds no capability to a cluster.
        """
        return cluster.model_copy(
            update={name: _joined(getattr(cluster, name), getattr(self, name)) for name in self.overrides}
        )


def _joined(cluster: Section | None, pool: Section | None) -> Section | None:
    """Return the cluster's section with the pool's keys."""
    if cluster is None or pool is None:
        return cluster
    return cluster.model_copy(
        update={name: getattr(pool, name) for name in pool.model_fields_set & keys_of(type(cluster)).keys()}
    )
