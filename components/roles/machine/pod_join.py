"""Prepare a pod: the folder that outlives it, and programs that keep others running."""

from __future__ import annotations

from components.node import files, packages, services
from components.node.step.step import Step
from components.roles.pod.paths import PACKAGES, STATE
from components.roles.pod.saved import restore, save

# Image builders delete packages after their installation. A new container installs these without a network.
_KEEP = "/etc/apt/apt.conf.d/99tailrack"
_KEEP_TEXT = f"""// Written by tailrack: keep the packages for the next start of this pod.
Dir::Cache::archives "{PACKAGES}";
APT::Keep-Downloaded-Packages "true";
Binary::apt-get::APT::Keep-Downloaded-Packages "true";"""


def pod_join(step: Step) -> None:
    """Make the folders, and install runit."""
    restore()
    files.make_folder(STATE, 0o700)
    files.make_folder(PACKAGES, 0o700)
    files.make_folder(f"{PACKAGES}/partial", 0o700)
    files.write(_KEEP, _KEEP_TEXT)
    packages.ensure(step.host, *services.PACKAGES, "openssh-server", "rsync")
    step.later.append(save)
