"""Docker, images, containers and clean-up of the lab, beside the stack's resources."""

import subprocess
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from cli.output.make_command import Make
from cli.pulumi.workspace import ROOT
from lab import cleanup, docker_daemon, images
from lab.errors import LabError
from lab.identity import LABEL, container_name, lab_id
from lab.profiles.machine import PROFILES

STATE_DIR = ROOT / "lab"


def prepare(profiles: Collection[str] = ()) -> None:
    """Start Docker and build the images, with progress. Otherwise the stack does it without showing any.

    profiles   the profiles of the config; unknown ones are ignored
    """
    docker_daemon.ensure_daemon()
    tags = images.tags()
    likes = [tags.profiles[like] for like in PROFILES if like in profiles]
    with closing(docker_daemon.connect()) as client:
        images.ensure_images(client, [tags.node, tags.control, *likes])


def container(lab: str, node: str, make: Make) -> str:
    """Return the name of a node's container. Raises LabError with the running nodes if it does not run.

    make   the commands of the stack
    """
    name = container_name(lab, node)
    prefix = name.removesuffix(node)
    command = ["docker", "ps", "--filter", f"name={prefix}", "--format", "{{.Names}}"]
    try:
        names = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    except FileNotFoundError:  # no Docker here
        names = []
    if name not in names:
        running = ", ".join(sorted(running_name.removeprefix(prefix) for running_name in names)) or "none"
        raise LabError(
            f"there is no running node {node!r} in the lab (running: {running}); run {make('up')}, or give another "
            "NODE=; connect to machines outside the lab by SSH, and use a shell on this machine for a local head node"
        )
    return name


def sweep(project: Path) -> None:
    """Remove every lab of a checkout, whatever its stack. Do nothing if no Docker engine answers."""
    try:
        client = docker_daemon.connect()
    except LabError:
        return
    with closing(client):
        labs = {item.labels[LABEL] for item in client.containers.list(all=True, filters={"label": LABEL})}
        labs |= {item.attrs["Labels"][LABEL] for item in client.networks.list(filters={"label": LABEL})}
    for lab in sorted(labs):
        if lab.startswith(lab_id(project)):
            clear_away(lab)
    stop_docker()


def clear_away(lab: str) -> None:
    """Remove the containers, networks, volumes and keys of a lab."""
    with closing(docker_daemon.connect()) as client:
        cleanup.remove_lab(client, lab, STATE_DIR)


def stop_docker() -> None:
    """Stop the Docker engine if this checkout started it and no container is left in it."""
    with closing(docker_daemon.connect()) as client:
        unused = not client.containers.list(all=True)
    if unused:
        docker_daemon.stop_daemon()
