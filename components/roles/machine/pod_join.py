"""Prepare a pod: the folder that outlives it, and programs that keep others running."""

from __future__ import annotations

from functools import partial

from components.node import files, folders, packages, services
from components.node.failure import Failure
from components.node.step.step import Step
from components.roles.pod.paths import PACKAGES, STATE, VOLUME
from components.roles.pod.saved import require_room, restore, save

# Image builders delete packages after their installation. A new container installs these without a network.
_KEEP = "/etc/apt/apt.conf.d/99tailrack"
_KEEP_TEXT = f"""// Written by tailrack: keep the packages for the next start of this pod.
Dir::Cache::archives "{PACKAGES}";
APT::Keep-Downloaded-Packages "true";
Binary::apt-get::APT::Keep-Downloaded-Packages "true";"""


def pod_join(step: Step) -> None:
    """Make the folders, and install runit."""
    close_volume(step.host)
    require_room(step.host)
    restore()
    files.make_folder(STATE, 0o700)
    files.make_folder(PACKAGES, 0o700)
    files.make_folder(f"{PACKAGES}/partial", 0o700)
    files.write(_KEEP, _KEEP_TEXT)
    packages.ensure(step.host, *services.PACKAGES, "openssh-server", "rsync")
    step.later.append(partial(save, step.host))


def close_volume(host: str) -> None:
    """Let only root change the volume's top folder, which some providers leave open. Users get their own below it."""
    if not files.is_closed(VOLUME):
        folders.take(VOLUME)
    if not files.is_closed(VOLUME):
        raise Failure(
            f"other accounts than root can change {VOLUME}, which would give them the cluster's keys, and chmod does "
            "not help",
            f"start {host} with a volume of a file system that keeps owners and modes",
        )
