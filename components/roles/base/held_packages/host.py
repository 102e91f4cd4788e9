"""Pin the versions of the cluster's packages until the machine leaves.

Another slurmd does not start if the cluster's Pyxis does not fit it, and another driver ends GPU jobs. apt and
unattended-upgrades do not upgrade a pinned package. To upgrade one, remove the file, upgrade, and run the step again.
"""

import re

from components.node import files
from components.node.run import run
from components.node.step.step import Step

PINS = "/etc/apt/preferences.d/tailrack"
_FORMAT = "${db:Status-Status} ${Package} ${source:Package} ${Version}\\n"
_SOURCES = re.compile(r"slurm-wlm|slurm-smd|munge|tailscale")
_NAMES = re.compile(r"slurmd|slurmctld|munge|tailscale")
_DRIVER = re.compile(r"nvidia|^cuda-drivers|^libcuda1")
_DRIVER_MODULES = re.compile(r"linux-(modules|objects|signatures)-nvidia-")
_KERNEL_SOURCE = re.compile(r"linux(-|$)")
_NEEDRESTART = "/etc/needrestart"


def machine(step: Step, node_gpu_count: int) -> None:
    """Write the pins of the packages that are installed now."""
    pins = (
        f"\n\nPackage: {name}\nPin: version {version}\nPin-Priority: 1000"
        for name, version in _held(has_gpus=node_gpu_count > 0)
    )
    files.write(PINS, f"# Written by tailrack (docs/day-2.md, updates).{''.join(pins)}")


def _held(*, has_gpus: bool) -> list[tuple[str, str]]:
    """Return the names and versions of the packages to hold, selected by name and source.

    If packages contain the driver's modules for a kernel, hold the kernel too: another one would boot without GPUs.
    """
    rows = [line.split() for line in run("dpkg-query", "-W", f"-f={_FORMAT}").splitlines()]
    packages = [(row[1], row[2], row[3]) for row in rows if row[:1] == ["installed"]]
    hold_kernel = has_gpus and any(_DRIVER_MODULES.match(name) for name, _, _ in packages)
    return sorted(
        {
            (name, version)
            for name, source, version in packages
            if _SOURCES.fullmatch(source)
            or _NAMES.fullmatch(name)
            or (has_gpus and (_DRIVER.search(name) or "nvidia" in source))
            or (hold_kernel and _KERNEL_SOURCE.match(source))
        }
    )


def leave(step: Step) -> None:
    """Remove the pins and needrestart's settings, and its folders unless needrestart is installed."""
    files.remove(PINS)
    files.remove(f"{_NEEDRESTART}/conf.d/tailrack.conf")
    for folder in (f"{_NEEDRESTART}/conf.d", _NEEDRESTART):
        files.remove_if_empty(folder)
