"""Checks of sites whose machines are pods: containers without systemd, on hosts of strangers."""

from components.settings.draft import Draft
from components.settings.problems import Report
from stacks.sites.pods import RISK, check_head, check_site

# Providers whose machines are pods.
_OF_PODS = frozenset({"runpod"})


def check_pods(site: Draft, head: Draft, report: Report) -> None:
    """Report pods without the accepted risk, and settings that no pod can have."""
    pods, accepted = site.value("pods"), site.value("accept_pod_risk")
    if pods is not True:
        if pods is False and site.text("preset") in _OF_PODS:
            problem = f"{report.value(site.path_of('preset'), site.text('preset'))} needs pods: true"
            breaks = "its machines are containers without systemd, which the steps of other machines cannot set up"
            fix = f"write pods: true and accept_pod_risk: true for the site, which accepts this: {RISK}"
            report.add(site.path_of("preset"), problem, breaks, fix)
        if accepted is True:
            breaks, fix = "there is no risk to accept", "write pods: true beside it, or delete it"
            report.add(site.path_of("accept_pod_risk"), "is true, but pods is not", breaks, fix)
        if site.value("stage") is True:
            breaks, fix = "these machines have the share, so jobs find their files there", "delete it"
            report.add(site.path_of("stage"), "is true, but pods is not", breaks, fix)
        return
    if accepted is False:
        fix = "write accept_pod_risk: true beside it to accept this, or rent machines with systemd"
        report.add(site.path_of("pods"), "true does not accept the risk", RISK, fix)
    check_site(site, report)
    if head.text("site") is not None and head.text("site") == site.text("name"):
        check_head(head, report)
    for host in site.items("hosts"):
        if host.value("adopt") is True:
            problem, breaks = (
                "is true for a pod",
                "the daemon of its tailnet would not have the settings that Slurm needs",
            )
            report.add(host.path_of("adopt"), problem, breaks, "delete it; the steps join the pod to the tailnet")
    for login in (site, *site.items("hosts")):
        if login.raw.get("spot") is not None:
            problem, breaks = "is set for pods", "no pod can read the provider's notice"
            report.add(
                login.path_of("spot"), problem, breaks, "delete it; Slurm requeues the jobs of a pod that is gone"
            )
