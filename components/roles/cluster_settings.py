"""Settings of a cluster without its machines: sections of the stack config."""

from components.roles.access.users.settings import GithubKeys, Group, Oidc, User
from components.roles.containers.enroot_pyxis.settings import Containers
from components.roles.jobs.job_reports.settings import JobReports
from components.roles.jobs.mlflow.settings import Mlflow
from components.roles.monitoring.health.settings import Health, JobHangs
from components.roles.monitoring.monitoring.settings import Monitoring
from components.roles.network.fabric.settings import Fabric
from components.roles.network.tailnet.settings import Tailnet
from components.roles.slurm.accounting.settings import Accounting
from components.roles.slurm.slurm.settings import Slurm
from components.roles.storage.backup.settings import Backup
from components.roles.storage.datasets.settings import Dataset, Staging
from components.roles.storage.scratch.settings import Scratch
from components.roles.storage.share.settings import Storage
from components.settings.cluster import Cluster, Head
from components.settings.money import DEFAULT_CURRENCY, Budget, Currency
from components.settings.section import Section, key
from components.settings.validation import Validation


class ClusterSettings(Section):
    """Settings of one cluster."""

    cluster: Cluster = key(fix="write {name: lab}")
    """The cluster."""
    head: Head = key(fix="write {name: head, site: a site's name}")
    """The head node."""
    users: tuple[User, ...] = key(fix="write [{name: ada, uid: 6001}]", min_length=1)
    """User accounts, the same on every node."""
    github_keys: GithubKeys = key(default={})
    """Public SSH keys of users with `github`, by GitHub name; `make github-keys` writes them."""
    oidc: Oidc | None = None
    """[Logins with an identity of a provider](day-2.md#users-keys), for users with `oidc`; default: off."""
    groups: tuple[Group, ...] = key(fix="write [{name: vision, gid: 7001}]", default=())
    """Groups of users, each with a shared folder; [groups](day-2.md#groups)."""
    tailnet: Tailnet = Tailnet()
    """The network between the nodes."""
    storage: Storage = Storage()
    """The share."""
    slurm: Slurm = Slurm()
    """Additional settings of Slurm."""
    accounting: Accounting = Accounting()
    """Records of jobs, and limits."""
    budget: Budget | None = None
    """A monthly [budget](pools.md#a-budget) of the cluster with its pools; default: none."""
    fabric: Fabric = Fabric()
    """The machines' fast network."""
    containers: Containers | None = None
    """Containers for jobs; default: off."""
    backup: Backup | None = None
    """Backups of the head node; default: off."""
    scratch: Scratch = Scratch()
    """Job scratch space on a local disk of each node."""
    datasets: tuple[Dataset, ...] = key(
        "a list of data sets", 'write [{name: imagenet, source: "s3://my-bucket/imagenet"}]', default=()
    )
    """Data sets that nodes copy to their own disks (docs/data.md)."""
    staging: Staging = Staging()
    """Limits of copying data sets."""
    health: Health = Health()
    """Automatic checks of nodes."""
    profiling: bool = False
    """Let users read GPU counters (`ncu`) and measure their own processes with `perf` on compute nodes
    ([risk](security.md#what-a-user-cannot-do))."""
    monitoring: Monitoring | None = None
    """Metrics of all machines, collected by Prometheus on the head node; default: off."""
    job_reports: JobReports | None = None
    """Reports about jobs by mail, Slack or webhook, sent from the head node; default: off."""
    job_hangs: JobHangs | None = None
    """A search for GPU jobs that [hang](using.md#jobs-that-hang); default: off."""
    mlflow: Mlflow | None = None
    """MLflow's tracking server for experiments, on the head node; default: off."""
    validation: Validation = Validation()
    """The bandwidth measurement."""
    currency: Currency = DEFAULT_CURRENCY
