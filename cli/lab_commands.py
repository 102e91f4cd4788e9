"""What `make` does to the lab beside the stack's own resources: Docker, images, live status, the last clean-up."""

from __future__ import annotations

import subprocess
from collections.abc import Collection
from pathlib import Path

from cli.output.make_command import Make
from cli.pulumi.workspace import ROOT
from lab import cleanup, docker_daemon, images
from lab.errors import LabError
from lab.identity import LABEL, container_name, lab_id
from lab.profiles.machine import PROFILES

_NO_STACK = Make()
STATE_DIR = ROOT / "lab"


def have_docker() -> None:
    """Make a Docker engine answer; installs and starts one where there is none, and says so."""
    docker_daemon.ensure_daemon()


def prepare(profiles: Collection[str] = ()) -> None:
    """Have Docker and the images before the stack runs, with progress; the stack would do it too, silently.

    profiles   those of the config, as far as there are such
    """
    have_docker()
    client = docker_daemon.connect()
    tags = images.tags()
    likes = [tags.profiles[like] for like in PROFILES if like in profiles]
    images.ensure_images(client, [tags.node, tags.control, *likes])
    client.close()


def container(lab: str, node: str, make: Make = _NO_STACK) -> str:
    """Return the name of a node's container. Raises LabError naming the nodes there are when it does not run.

    make   the commands of the stack
    """
    name = container_name(lab, node)
    prefix = name.removesuffix(node)
    words = ["docker", "ps", "--filter", f"name={prefix}", "--format", "{{.Names}}"]
    try:
        names = subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()
    except FileNotFoundError:  # no Docker here
        names = []
    if name not in names:
        there = ", ".join(sorted(found.removeprefix(prefix) for found in names)) or "none"
        raise LabError(
            f"there is no running node {node!r} in the lab (there is: {there}); run {make('up')}, or give another "
            "NODE=; other machines are reached by ssh, and of a local head node any shell of this machine is one"
        )
    return name


def sweep(project: Path) -> None:
    """Remove every lab of a checkout, whatever its stack. Does nothing where no Docker engine answers."""
    try:
        client = docker_daemon.connect()
    except LabError:
        return
    own = lab_id(project)
    found = {
        item.labels[LABEL]
        for item in client.containers.list(all=True, filters={"label": LABEL})
        if item.labels[LABEL].startswith(own)
    }
    found |= {
        item.attrs["Labels"][LABEL]
        for item in client.networks.list(filters={"label": LABEL})
        if item.attrs["Labels"][LABEL].startswith(own)
    }
    client.close()
    for lab in sorted(found):
        clear_away(lab)
    stop_docker()


def clear_away(lab: str) -> None:
    """Remove whatever a lab still has: containers, networks, volumes, keys."""
    client = docker_daemon.connect()
    cleanup.remove_lab(client, lab, STATE_DIR)
    client.close()


def stop_docker() -> None:
    """Stop the Docker engine if this checkout started it and no container is left in it."""
    client = docker_daemon.connect()
    unused = not client.containers.list(all=True)
    client.close()
    if unused:
        docker_daemon.stop_daemon()
