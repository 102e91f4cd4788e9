"""Checks of nebius sites."""

from collections.abc import Sequence

from components.settings.draft import Draft
from components.settings.problems import Report
from stacks.sites.rented.checks import check_new_machines


def check(sites: Sequence[Draft], head: Draft, report: Report) -> None:
    """Report settings that Nebius would reject, and GPUs without a driver."""
    check_new_machines(sites, head, report)
    for site in sites:
        image = site.text("image") or ""
        if image.endswith("driverless") and any(pool.raw.get("gpu") is not None for pool in site.items("pools")):
            path = site.path_of("image")
            problem = f"{report.value(path, image)} has no NVIDIA driver, but a pool expects GPUs"
            breaks = "the check step would fail after machines have started to cost money"
            report.add(path, problem, breaks, "write a family with cuda in its name, or leave gpu out")
