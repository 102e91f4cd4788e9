"""Checks of runpod sites."""

import re
from collections.abc import Sequence

from components.settings.draft import Draft
from components.settings.network_names import is_interface
from components.settings.problems import Report
from stacks.rental.runpod import COUNTS
from stacks.sites.pods import RISK, check_head, check_site
from stacks.sites.rented import checks


def check(sites: Sequence[Draft], head: Draft, report: Report) -> None:
    """Report what RunPod would reject, and settings that no pod can have."""
    place = head.text("site")
    at_head = [site for site in sites if place is not None and site.text("name") == place]
    for site in sites:
        if site.value("accept_pod_risk") is False:
            fix = "write accept_pod_risk: true to accept this, or rent machines with systemd"
            report.add(site.path_of("accept_pod_risk"), "is not true", RISK, fix)
        check_site(site, report)
        _check_fabric(site, report)
        for pool in site.items("pools"):
            for attempt in (pool, *pool.items("try")):
                _check_type(attempt, report)
    if at_head:
        check_head(head, report)
    checks.check([site for site in sites if site not in at_head], head, report)


def _check_fabric(site: Draft, report: Report) -> None:
    """Report a network for jobs over several pods, which pods that are rented one by one do not have."""
    if (name := site.text("fabric")) is not None and is_interface(name):
        problem = f"{report.value(site.path_of('fabric'), name)} is set for pods that RunPod rents one by one"
        fix = "delete it; rent an Instant Cluster yourself, and write its pods in a site of kind: hosts"
        report.add(site.path_of("fabric"), problem, "they share no network, so no pod could join", fix)


def _check_type(attempt: Draft, report: Report) -> None:
    """Report a number of GPUs that no type has."""
    name, path = attempt.text("type") or "", attempt.path_of("type")
    count = re.match(r"(\d+)x_", name)
    if count and int(count[1]) not in COUNTS[1:]:
        breaks = "RunPod would be asked for a type that does not exist"
        fix = "write 2x_, 4x_ or 8x_ before the GPU's id, or the id alone for one GPU"
        report.add(path, f"{report.value(path, name)} is not a type for pods", breaks, fix)
