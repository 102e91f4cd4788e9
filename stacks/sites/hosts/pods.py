"""Checks of sites whose machines are pods: containers without systemd, on hosts of strangers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from components.settings.cluster import Head
from components.settings.problems import Report
from stacks.sites.pods import RISK, check_head, check_site

if TYPE_CHECKING:
    from stacks.sites.hosts.model import HostConfig, HostsSite

# Providers whose machines are pods.
_OF_PODS = frozenset({"runpod"})


def check_pods(site: HostsSite, head: Head, report: Report) -> None:
    """Report pods without the accepted risk, and settings that no pod can have."""
    if not site.pods:
        if site.preset in _OF_PODS:
            path = report.at(site, "preset")
            breaks = "its machines are containers without systemd, which the steps of other machines cannot set up"
            fix = f"write pods: true and accept_pod_risk: true for the site, which accepts this: {RISK}"
            report.add(path, f"{report.value(path, site.preset)} needs pods: true", breaks, fix)
        if site.accept_pod_risk:
            breaks, fix = "there is no risk to accept", "write pods: true beside it, or delete it"
            report.add(report.at(site, "accept_pod_risk"), "is true, but pods is not", breaks, fix)
        if site.stage:
            breaks, fix = "these machines have the share, so jobs find their files there", "delete it"
            report.add(report.at(site, "stage"), "is true, but pods is not", breaks, fix)
        return
    if not site.accept_pod_risk:
        fix = "write accept_pod_risk: true beside it to accept this, or rent machines with systemd"
        report.add(report.at(site, "pods"), "true does not accept the risk", RISK, fix)
    check_site(site, report)
    if head.site == site.name:
        check_head(head, report)
    for host in site.hosts:
        if host.adopt:
            breaks = "the daemon of its tailnet would not have the settings that Slurm needs"
            fix = "delete it; the steps join the pod to the tailnet"
            report.add(report.at(host, "adopt"), "is true for a pod", breaks, fix)
    logins: list[HostsSite | HostConfig] = [site, *site.hosts]
    for login in logins:
        if login.spot is not None:
            fix = "delete it; Slurm requeues the jobs of a pod that is gone"
            report.add(report.at(login, "spot"), "is set for pods", "no pod can read the provider's notice", fix)
