"""Checks of gcp sites."""

from collections.abc import Sequence

from components.settings.draft import Draft
from components.settings.problems import Report
from stacks.sites.rented.checks import check_new_machines

PLAIN_IMAGE = "ubuntu-os-cloud/"


def check(sites: Sequence[Draft], head: Draft, report: Report) -> None:
    """Report settings that Google would reject, and GPUs without a driver."""
    check_new_machines(sites, head, report)
    for site in sites:
        image = site.text("image") or ""
        for pool in site.items("pools"):
            if pool.raw.get("gpu") is not None and image.startswith(PLAIN_IMAGE):
                path = site.path_of("image")
                problem = f"{report.value(path, image)} has no NVIDIA driver, but a pool expects GPUs"
                breaks = "the check step would fail after machines have started to cost money"
                report.add(path, problem, breaks, "write an image with the driver, or leave gpu out")
                break
