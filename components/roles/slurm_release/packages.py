"""Slurm's installed packages, by the source that they were built from."""

from __future__ import annotations

from components.node.run import run
from components.node.step.step import STATE_DIR

# Keeps apt from installing the distribution's Slurm during upgrades.
PIN = "/etc/apt/preferences.d/tailrack-slurm"
# The name of the installed release's package folder, in one line.
INSTALLED = f"{STATE_DIR}/slurm-release"

OURS = "slurm-smd"
# Debian's and Ubuntu's, by the current and the former name of their source.
DISTRIBUTIONS = ("slurm-wlm", "slurm-llnl")


def installed_packages() -> dict[str, list[str]]:
    """Return the names of installed packages by source, of all packages of this machine."""
    packages: dict[str, list[str]] = {}
    for line in run("dpkg-query", "-W", "-f=${source:Package} ${db:Status-Status} ${Package}\\n").splitlines():
        source, state, name = line.split()
        if state == "installed":
            packages.setdefault(source, []).append(name)
    return packages
