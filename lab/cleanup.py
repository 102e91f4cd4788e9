"""Removal of everything that carries a lab's label."""

import shutil
from pathlib import Path

import docker
from docker.errors import APIError, NotFound

from cli.file_lock import locked
from lab.identity import LABEL, lock_path


def remove_lab(client: docker.DockerClient, lab: str, state_dir: Path) -> None:
    """Remove a lab's containers, networks, volumes and folder; missing ones are no error."""
    filters = {"label": f"{LABEL}={lab}"}
    with locked(lock_path(state_dir, lab)):
        for container in client.containers.list(all=True, filters=filters, ignore_removed=True):
            forget(container.remove, v=True, force=True)
        for network in client.networks.list(filters=filters):
            forget(network.remove)
        for volume in client.volumes.list(filters=filters):
            forget(volume.remove, force=True)
        if (state_dir / lab).is_dir():
            shutil.rmtree(state_dir / lab)


def forget(remove: object, **options: bool) -> None:
    """Call a Docker object's `remove`, taking "not there" and "being removed already" for done."""
    try:
        remove(**options)  # type: ignore[operator]
    except NotFound:
        return
    except APIError as error:
        if "already in progress" not in str(error.explanation):
            raise
