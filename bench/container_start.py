"""How long a job takes to start in a container: by a staged name, against the import of the image and other ways.

Brings up the dev stack with the containers of TAILRACK_ARTIFACTS, stages an image of 50 MB, and prints, each beside
the same job on the bare machine: the import with all that publishes it, the time until every node has it, a start from
the share's file that is unpacked first, by staged name, and in a container that is there. Medians; nothing is judged.
"""

from __future__ import annotations

import copy
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from cli import lab_commands
from cli.pulumi.deployment import Deployment, stack_config
from cli.pulumi.find_engine import find_engine
from cli.pulumi.workspace import PROJECT, ROOT, Workspace
from cli.run_events import Event
from components.roles.enroot_pyxis.settings import ARTIFACTS_VARIABLE
from lab.identity import container_name

STACK, ROUNDS = "benchc", 5
IMAGE = "/export/tools.sqsh"


def on(deployment: Deployment, node: str, command: str, text: str = "") -> str:
    """Run a command as root on a node, with a text on its stdin; return its stdout, or raise CalledProcessError."""
    docker_command = ["docker", "exec", "-i", container_name(deployment.lab, node), "bash", "-c", command]
    return subprocess.run(docker_command, input=text, check=True, capture_output=True, text=True).stdout


def seconds_of(work: Callable[[], object]) -> float:
    """Return how long a piece of work takes."""
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def starts(deployment: Deployment, options: str, rounds: int = ROUNDS) -> float:
    """The median of a job on a1 that does nothing, in seconds as `srun` takes them on the head node."""
    job = f"time -p srun --quiet -w a1 {options} true"
    outputs = [on(deployment, "head", f"su - ada -c {shlex.quote(job)} 2>&1") for _ in range(rounds)]
    return statistics.median(float(text.partition("real ")[2].split()[0]) for text in outputs)


def insist(summary: Any) -> None:
    """Stop with the reasons when an operation failed."""
    if not summary.ok:
        sys.exit("\n".join(failure.message for failure in summary.failures))


def main() -> None:
    """Measure and print."""
    if not os.environ.get(ARTIFACTS_VARIABLE):
        print(f"CONTAINERS ARE NOT MEASURED: {ARTIFACTS_VARIABLE} names no folder with Enroot and Pyxis")
        return
    config = yaml.safe_load(stack_config(PROJECT, "dev").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        file, events = Path(folder) / f"Pulumi.{STACK}.yaml", list[Event]()

        def open_deployment(wanted: dict[str, Any]) -> Deployment:
            file.write_text(json.dumps(wanted), encoding="utf-8")
            events.clear()
            return Deployment(
                Workspace(PROJECT, STACK, file, ROOT / "bench"),
                find_engine(os.environ.get("ENGINE", "")),
                events.append,
            )

        deployment = open_deployment(config)
        lab_commands.prepare(deployment.written.profiles)
        try:
            insist(deployment.up())
            script = (PROJECT / "tests/lab/container_image.sh").read_text(encoding="utf-8")
            on(deployment, "head", f"bash -s -- {IMAGE}", script)
            staged = copy.deepcopy(config)
            staged["config"]["tailrack:containers"] = {"images": [{"name": "tools", "source": IMAGE}]}
            deployment = open_deployment(staged)
            insist(deployment.up())
            imported = next(event.seconds for event in events if event.kind == "done" and event.name == "head-services")
            nodes = ("head", "a1", "b1")
            copied = seconds_of(lambda: [on(deployment, node, "systemctl start tailrack-containers") for node in nodes])
            bare = starts(deployment, "")
            figures = {
                "import and publish (step head-services)": imported,
                "copy to three nodes, far one over the relay": copied,
                "unpacked from the share": starts(deployment, "--container-image=/shared/containers/images/tools.sqsh"
                                                  " --container-name=fresh$RANDOM", 3),
                "by staged name": starts(deployment, "--container-image=tools"),
                "in a container that is there": starts(deployment, "--container-image=tools --container-name=kept"),
            }  # fmt: skip
        finally:
            deployment.destroy()
            lab_commands.clear_away(deployment.lab)
    for label, seconds in figures.items():
        print(f"{label:45}{seconds:7.2f} s   {seconds / bare:6.1f} x the bare job ({bare:.2f} s)")


if __name__ == "__main__":
    main()
