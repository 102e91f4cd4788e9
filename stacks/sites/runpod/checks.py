"""Checks of runpod sites."""

import re
from collections.abc import Sequence

from components.settings.cluster import Head
from components.settings.network_names import is_interface
from components.settings.problems import Report
from stacks.rental.runpod import COUNTS
from stacks.sites.pods import RISK, check_head, check_site
from stacks.sites.rented import checks
from stacks.sites.rented.model import Attempt, RentedPool, attempts
from stacks.sites.runpod.model import RunPodSite


def check(sites: Sequence[RunPodSite], head: Head, report: Report) -> None:
    """Report what RunPod would reject, and settings that no pod can have."""
    at_head = [site for site in sites if site.name == head.site]
    for site in sites:
        if not site.accept_pod_risk:
            fix = "write accept_pod_risk: true to accept this, or rent machines with systemd"
            report.add((site, "accept_pod_risk"), "is not true", RISK, fix)
        check_site(site, report)
        _check_fabric(site, report)
        for pool in site.pools:
            places: list[RentedPool | Attempt] = [pool, *attempts(pool)]
            for attempt in places:
                _check_type(attempt, report)
    if at_head:
        check_head(head, report)
    checks.check([site for site in sites if site not in at_head], head, report)


def _check_fabric(site: RunPodSite, report: Report) -> None:
    """Report a network for jobs over several pods, which pods that are rented one by one do not have."""
    if is_interface(site.fabric):
        problem = "is set for pods that RunPod rents one by one"
        fix = "delete it; rent an Instant Cluster yourself, and write its pods in a site of kind: hosts"
        report.bad((site, "fabric"), problem, "they share no network, so no pod could join", fix)


def _check_type(attempt: RentedPool | Attempt, report: Report) -> None:
    """Report a number of GPUs that no type has."""
    count = re.match(r"(\d+)x_", attempt.type or "")
    if count and int(count[1]) not in COUNTS[1:]:
        breaks = "RunPod would be asked for a type that does not exist"
        fix = "write 2x_, 4x_ or 8x_ before the GPU's id, or the id alone for one GPU"
        report.bad((attempt, "type"), "is not a type for pods", breaks, fix)
