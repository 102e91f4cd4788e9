"""Settings of a cluster without its machines: sections of the stack config."""

from components.roles.accounting.settings import Accounting
from components.roles.backup.settings import Backup
from components.roles.budget.settings import Budget
from components.roles.datasets.settings import Dataset, Staging
from components.roles.enroot_pyxis.settings import Containers
from components.roles.gpu.settings import Fabric
from components.roles.health.settings import Health
from components.roles.job_hangs.settings import JobHangs
from components.roles.job_reports.settings import JobReports
from components.roles.mlflow.settings import Mlflow
from components.roles.monitoring.settings import Monitoring
from components.roles.nfs_exports.settings import Storage
from components.roles.scratch.settings import Scratch
from components.roles.slurm.settings import Slurm
from components.roles.tailnet.settings import Tailnet
from components.roles.user_groups.settings import Group
from components.roles.user_keys.settings import GithubKeys, github_keys_key
from components.roles.users.settings import User
from components.settings.cluster import Cluster, Head
from components.settings.money import Currency, currency_key
from components.settings.section import Section, key, yes_no
from components.settings.validation import Validation


class ClusterSettings(Section):
    """Settings of one cluster."""

    cluster: Cluster = key(
        "the cluster", wants="a mapping", breaks="the cluster would have no name", fix="write {name: lab}"
    )
    head: Head = key(
        "the head node",
        wants="a mapping",
        breaks="no node would run slurmctld",
        fix="write {name: head, site: a site's name}",
    )
    users: tuple[User, ...] = key(
        "user accounts, the same on every node",
        wants="a list of one user or more",
        breaks="no one could submit a job",
        fix="write [{name: ada, uid: 6001}]",
        min_length=1,
    )
    github_keys: GithubKeys = github_keys_key()
    groups: tuple[Group, ...] = key(
        "groups of users, each with a shared folder; [groups](day-2.md#groups)",
        wants="a list of groups",
        breaks="no group would be created",
        fix="write [{name: vision, gid: 7001}]",
        default=(),
    )
    tailnet: Tailnet = key("the network between the nodes", default=Tailnet())
    storage: Storage = key("the share", default=Storage())
    slurm: Slurm = key("additional settings of Slurm", default=Slurm())
    accounting: Accounting = key("records of jobs, and limits", default=Accounting())
    budget: Budget | None = key(
        "a monthly [budget](pools.md#a-budget) of the cluster with its pools; default: none", default=None
    )
    fabric: Fabric = key("the machines' fast network", default=Fabric())
    containers: Containers | None = key("containers for jobs; default: off", default=None)
    backup: Backup | None = key("backups of the head node; default: off", default=None)
    scratch: Scratch = key("job scratch space on a local disk of each node", default=Scratch())
    datasets: tuple[Dataset, ...] = key(
        "data sets that nodes copy to their own disks (docs/data.md)",
        wants="a list of data sets",
        breaks="no data set would be copied",
        fix='write [{name: imagenet, source: "s3://my-bucket/imagenet"}]',
        default=(),
    )
    staging: Staging = key("limits of copying data sets", default=Staging())
    health: Health = key("automatic checks of nodes", default=Health())
    profiling: bool = yes_no(
        "let users read GPU counters (`ncu`) and measure their own processes with `perf` on compute nodes "
        "([risk](security.md#what-a-user-cannot-do))",
        False,
    )
    monitoring: Monitoring | None = key(
        "metrics of all machines, collected by Prometheus on the head node; default: off", default=None
    )
    job_reports: JobReports | None = key(
        "reports about jobs by mail, Slack or webhook, sent from the head node; default: off", default=None
    )
    job_hangs: JobHangs | None = key(
        "a search for GPU jobs that [hang](using.md#jobs-that-hang); default: off", default=None
    )
    mlflow: Mlflow | None = key(
        "MLflow's tracking server for experiments, on the head node; default: off", default=None
    )
    validation: Validation = key("the bandwidth measurement", default=Validation())
    currency: Currency = currency_key()
