"""Checks of runpod sites."""

from collections.abc import Sequence

from components.settings.draft import Draft
from components.settings.problems import Report
from stacks.sites.rented import checks


def check(sites: Sequence[Draft], head: Draft, report: Report) -> None:
    """Report what RunPod would reject, and a head node in a pod."""
    place = head.text("site")
    if place is not None and place in [site.text("name") for site in sites]:
        path = head.path_of("site")
        problem = f"{report.value(path, place)} is a site of pods, but a pod cannot be the head node"
        breaks = "a pod has no systemd, and other nodes could not reach its ports"
        report.add(path, problem, breaks, "write a site of another kind")
        sites = [site for site in sites if site.text("name") != place]
    checks.check(sites, head, report)
