"""Command line of the lab: progress on stderr, one line of result on stdout, one line of error."""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from docker.errors import DockerException
from requests import RequestException

from lab import docker_daemon, images, network, node
from lab.errors import LabError
from lab.profiles.machine import PROFILES
from lab.spec import NetworkSpec, NodeSpec, PoolSpec, parse

# The description, the specification, and what makes and removes the thing, by command.
_THINGS: dict[str, tuple[str, type[Any], Callable[..., Any], Callable[..., None]]] = {
    "network": ("networks and control server", NetworkSpec, network.up, network.down),
    "pool": ("networks that a pool adds to a lab", PoolSpec, network.join, network.leave),
    "node": ("one machine", NodeSpec, node.up, node.down),
}


def main(argv: list[str] | None = None) -> int:
    """Run one command; return the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        _run(arguments)
    except (LabError, DockerException, RequestException) as error:
        print(f"lab: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    image = commands.add_parser("image", help="have a Docker engine, and build the images that are not there")
    image.add_argument("--like", choices=PROFILES, default="", help="the image of machines that look like real ones")
    for name, (text, *_) in _THINGS.items():
        command = commands.add_parser(name, help=f"{text}, as the JSON on stdin says")
        command.add_argument("action", choices=["up", "down"])
    return parser


def _run(arguments: argparse.Namespace) -> None:
    if arguments.command == "image":
        docker_daemon.ensure_daemon()
        tags = images.tags()
        images.ensure_images(docker_daemon.connect(), [tags.of_machine(arguments.like, bare=False), tags.control])
        return
    client = docker_daemon.connect()
    _, kind, make, remove = _THINGS[arguments.command]
    spec = parse(kind, sys.stdin.read())
    if arguments.action == "up":
        print(json.dumps(asdict(make(client, spec))))
    else:
        remove(client, spec)


if __name__ == "__main__":
    sys.exit(main())
