"""What a cluster is built from, apart from its machines: the sections of the stack config, as they are."""

from components.roles.accounting.settings import Accounting
from components.roles.backup.settings import Backup
from components.roles.enroot_pyxis.settings import Containers
from components.roles.gpu.settings import Fabric
from components.roles.health.settings import Health
from components.roles.mlflow.settings import Mlflow
from components.roles.monitoring.settings import Monitoring
from components.roles.nfs_exports.settings import Storage
from components.roles.scratch.settings import Scratch
from components.roles.slurm.settings import Slurm
from components.roles.tailnet.settings import Tailnet
from components.roles.users.settings import User
from components.settings.cluster import Cluster, Head
from components.settings.section import Section, key
from components.settings.validation import Validation


class ClusterSettings(Section):
    """Settings of one cluster."""

    cluster: Cluster = key(
        "the cluster as a whole", wants="a mapping", breaks="the cluster would have no name", fix="write {name: lab}"
    )
    head: Head = key(
        "the head node",
        wants="a mapping",
        breaks="no node would run slurmctld",
        fix="write {name: head, site: a site's name}",
    )
    users: tuple[User, ...] = key(
        "people's accounts, the same on every node",
        wants="a list of one user or more",
        breaks="nobody could submit a job",
        fix="write [{name: ada, uid: 6001}]",
        min_length=1,
    )
    tailnet: Tailnet = key("the network that joins the nodes", default=Tailnet())
    storage: Storage = key("the share", default=Storage())
    slurm: Slurm = key("Slurm beyond what tailrack sets itself", default=Slurm())
    accounting: Accounting = key("what jobs have used, and who may use how much", default=Accounting())
    fabric: Fabric = key("the machines' fast network", default=Fabric())
    containers: Containers | None = key("containers for jobs; left out, there are none", default=None)
    backup: Backup | None = key("backups of the head node; left out, there are none", default=None)
    scratch: Scratch = key("room for jobs on a disk of each node's own", default=Scratch())
    health: Health = key("nodes that look after themselves", default=Health())
    monitoring: Monitoring | None = key(
        "figures of all machines, collected by Prometheus on the head node; left out, there are none", default=None
    )
    mlflow: Mlflow | None = key(
        "MLflow's tracking server on the head node: what was trained how; left out, there is none", default=None
    )
    validation: Validation = key("the bandwidth measurement", default=Validation())
