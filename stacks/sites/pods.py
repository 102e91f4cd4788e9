"""Config keys and checks of sites whose machines are pods: containers without systemd, on hosts of strangers."""

from typing import Annotated

from pydantic import Field

from components.settings.cluster import Head
from components.settings.problems import Report
from stacks.sites.kind import Site

PodRisk = Annotated[
    bool,
    Field(
        description="True accepts that root of the hosts on which the pods run has the cluster's munge key, with which "
        "it can act as any user of the cluster ([security.md](security.md#pods)); required for pods."
    ),
]
Stage = Annotated[
    bool,
    Field(
        description="Bring the folder of every job to pods and its results back ([pods](using.md#pods)), as with "
        "`--comment=stage`; jobs with another comment, such as `nostage`, are left out."
    ),
]
RISK = "root of the pods' hosts can read the cluster's munge key, and act as any user of the cluster with it"


def check_site(site: Site, report: Report) -> None:
    """Report a site of pods that is in partition `all`."""
    if site.in_all and "in_all" in site.model_fields_set:
        breaks = "jobs would land on pods that do not have their files"
        report.add((site, "in_all"), "is true for a site of pods", breaks, "delete it: jobs ask for pods with -p")


def check_head(head: Head, report: Report) -> None:
    """Report a head node that is in a site of pods."""
    breaks = "a pod cannot serve the share, and its hosts' root would have every secret of the cluster"
    fix = "name another site for the head node, such as a small virtual machine or kind: local"
    report.add((head, "site"), "is a site of pods", breaks, fix)
