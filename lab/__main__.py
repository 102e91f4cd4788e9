"""Command line of the lab: progress on stderr, one line of result on stdout, one line of error."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from docker.errors import DockerException
from requests import RequestException

from lab import cleanup, engine, images, network, node
from lab.errors import LabError
from lab.identity import CHECKOUT, lab_id
from lab.likeness.machine import LIKENESSES
from lab.spec import NetworkSpec, NodeSpec, parse


def main(words: list[str] | None = None) -> int:
    """Run one command; return the exit status."""
    arguments = _parser().parse_args(words)
    try:
        result = _command(arguments)
    except (LabError, DockerException, RequestException) as error:
        print(f"lab: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    if result:
        print(result)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    docker_ = commands.add_parser("docker", help="have a Docker engine answer")
    docker_.add_argument("--stop", action="store_true", help="stop the engine that this command started")
    image = commands.add_parser("image", help="build the images that are not there")
    image.add_argument("--bare", action="store_true", help="the node image without the cluster's packages")
    image.add_argument("--like", choices=LIKENESSES, default="", help="the image of machines that look like real ones")
    image.add_argument("--cache", type=Path, default=images.CACHE, help="folder for built programs")
    for name, text in (("network", "networks and control server"), ("node", "one machine")):
        command = commands.add_parser(name, help=f"{text}, as the JSON on stdin says")
        command.add_argument("action", choices=["up", "down"])
    down = commands.add_parser("down", help="remove everything a lab has")
    status = commands.add_parser("status", help="list a lab's containers as JSON")
    for command in (down, status):
        command.add_argument("--lab", required=True)
    down.add_argument("--state-dir", type=Path, required=True)
    identity = commands.add_parser("id", help="print the lab id of this checkout")
    identity.add_argument("--suffix", default="")
    return parser


def _command(arguments: argparse.Namespace) -> str:
    """Run the command and return what goes to stdout."""
    match arguments.command:
        case "id":
            return lab_id(CHECKOUT, arguments.suffix)
        case "docker" if arguments.stop:
            return json.dumps({"stopped": engine.stop_engine()})
        case "docker":
            return json.dumps({"engine": engine.ensure_engine()})
    client = engine.connect()
    match arguments.command:
        case "image":
            tags = images.tags()
            node_image = tags.of_machine(arguments.like, bare=arguments.bare)
            images.ensure_images(client, [node_image, tags.control], arguments.cache)
            return json.dumps({"node_image": node_image, "control_image": tags.control})
        case "network" if arguments.action == "up":
            return json.dumps(network.up(client, parse(NetworkSpec, sys.stdin.read())).as_json())
        case "network":
            network.down(client, parse(NetworkSpec, sys.stdin.read()))
        case "node" if arguments.action == "up":
            return json.dumps(asdict(node.up(client, parse(NodeSpec, sys.stdin.read()))))
        case "node":
            node.down(client, parse(NodeSpec, sys.stdin.read()))
        case "status":
            return node.status(client, arguments.lab)
        case "down":
            cleanup.remove_lab(client, arguments.lab, arguments.state_dir)
    return ""


if __name__ == "__main__":
    sys.exit(main())
