"""Rules of Slurm's settings in a stack with pods."""

from __future__ import annotations

from collections.abc import Mapping

from components.settings.draft import Draft
from components.settings.problems import Report
from stacks.config.model import StackConfig

_PROGRAMS = ("prologslurmctld", "epilogslurmctld")


def check_slurm_of_pods(slurm: Draft, config: StackConfig, report: Report) -> None:
    """Report partitions that mix pods with others, and programs that replace those that bring files to pods."""
    pods = {node.site for node in config.nodes() if node.pod}
    for partition in slurm.items("partitions") if pods else ():
        named = partition.values.get("sites")
        for site in named if isinstance(named, tuple | list) else ():
            if site in pods:
                path = partition.path_of("sites")
                breaks = "jobs would start there without their files, and a job could get several pods"
                fix = f"remove it; jobs ask for pods with -p {site}"
                report.add(path, f"{report.value(path, site)} is a site of pods", breaks, fix)
    settings = slurm.raw.get("settings")
    for key in settings if pods and isinstance(settings, Mapping) else ():
        if str(key).lower() in _PROGRAMS:
            path = slurm.section("settings").path_of(str(key))
            breaks = "jobs' files would not be brought to pods and back"
            report.add(path, "is a key that tailrack sets itself in a stack with pods", breaks, "remove it")
