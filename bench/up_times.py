"""Time `up` on this machine, from nothing and unchanged, and the memory of the lab's containers.

Each figure is printed with its ratio to a peer of the same run: the bare containers alone, made and removed without
Slurm, tailnet or share; and an unchanged `up` of an empty program, which is the engine's own floor. For the `up`
from nothing each step's seconds are printed, the longest first: steps run side by side, so they add up to more than the
whole. Their cost is the difference to an `up` from nothing without them, which comes right after it. Then the same of
three and four hosts that answer at once at some distances, with the number of SSH connections and, in brackets, the
most to one host. Nothing is judged.

`python -m bench.up_times distance` prints only the last part.
"""

import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import docker
import yaml

from bench.distance import relayed
from bench.scale import engines, up_stack, workspace
from cli import lab_commands
from cli.pulumi.deployment import Deployment, stack_config
from cli.pulumi.find_engine import find_engine
from cli.pulumi.workspace import PROJECT, ROOT, CliError, Workspace
from cli.run_events import Event, Summary
from lab import network, node
from lab.identity import lab_id
from lab.spec import NetworkSpec, NodeSpec
from tests.engine.played_hosts import play, write_config

STACK = "bench"
# On by themselves.
OPTIONAL = ("accounting", "health")
PEER_LAB = lab_id(PROJECT, "peer")
ROUND_TRIPS_MS = (0, 30, 100)


def seconds_of(work: Callable[[], object]) -> float:
    """Return how long a piece of work takes."""
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def insist(summary: Summary) -> None:
    """Stop with the reason when an operation failed: a figure of half a run means nothing."""
    if not summary.ok:
        raise CliError("\n".join(failure.message for failure in summary.failures))


def containers_alone() -> float:
    """Seconds to make the lab's networks and three containers and nothing in them."""
    client, lab = docker.from_env(), {"lab": PEER_LAB, "state_dir": lab_commands.STATE_DIR}
    networks = NetworkSpec.model_validate({**lab, "sites": {"cloud-a": None, "cloud-b": None}})
    sites = {"head": "cloud-a", "a1": "cloud-a", "b1": "cloud-b"}
    nodes = [NodeSpec.model_validate({**lab, "node": name, "site": site}) for name, site in sites.items()]

    def make() -> None:
        network.up(client, networks)
        for spec in nodes:
            node.up(client, spec)

    seconds = seconds_of(make)
    lab_commands.clear_away(PEER_LAB)
    return seconds


def quiet(event: Event) -> None:
    """Print nothing about an event."""


def empty_program(folder: Path) -> float:
    """Seconds of an unchanged `up` of a program without resources."""
    (folder / "__main__.py").write_text("", encoding="utf-8")
    (folder / "Pulumi.yaml").write_text((PROJECT / "Pulumi.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    config = folder / "Pulumi.empty.yaml"
    config.write_text("config: {}\n", encoding="utf-8")
    (folder / ".venv").symlink_to(PROJECT / ".venv")
    deployment = Deployment(Workspace(folder, "empty", config, folder / "state"), find_engine(engine()), quiet)
    insist(deployment.up())
    return seconds_of(deployment.up)


def without_services(folder: Path) -> Path:
    """Write the dev stack's config with all off that costs an `up` something and can be off; return its path."""
    config: dict[str, Any] = yaml.safe_load(stack_config(PROJECT, "dev").read_text(encoding="utf-8"))
    for section in OPTIONAL:
        config["config"][f"tailrack:{section}"] = {"enabled": False}
    path = folder / f"Pulumi.{STACK}.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def engine() -> str:
    """The engine asked for, as for make."""
    return os.environ.get("ENGINE", "")


def memory_mb(lab: str) -> float:
    """Memory of all containers of a lab, in MB (10^6 bytes), as Docker counts it."""
    client = docker.from_env()
    containers = client.containers.list(filters={"label": f"tailrack.lab={lab}"})
    used = [cast(dict[str, Any], container.stats(stream=False))["memory_stats"]["usage"] for container in containers]
    return float(sum(used)) / 1e6


def distances() -> None:
    """Print the engine's seconds for an `up` of three hosts, of one more, and of no change, by round trip.

    Also print the SSH connections of the first two: all, and the most to one host.
    """
    for name in engines():
        for milliseconds in ROUND_TRIPS_MS:
            with play(4) as played, relayed(played.ports, milliseconds / 1000) as (ports, accepted):
                keys, hosts = (played.private_key, played.host_key), [("127.0.0.1", port) for port in ports]
                with workspace(hosts[:3], *keys) as stack:

                    def up_seconds(
                        stack: Workspace = stack, name: str = name, accepted: Counter[int] = accepted
                    ) -> tuple[float, str]:
                        accepted.clear()
                        output = up_stack(name, stack).output
                        # The status is that of a measurement, which such hosts cannot do.
                        if not (seconds := re.findall(r" in ([0-9.]+) s\.", output)) or " failed" in output:
                            raise CliError(output)
                        return float(seconds[-1]), f"{accepted.total()} ({max(accepted.values(), default=0)})"

                    first, connections = up_seconds()
                    write_config(stack.config_file.parent, hosts, *keys)
                    join, more = up_seconds()
                    print(
                        f"{name:9} {milliseconds:4} ms   first up {first:6.1f} s   one more {join:6.1f} s   unchanged "
                        f"{up_seconds()[0]:6.1f} s   connections {connections}, {more}   load {os.getloadavg()[0]:.1f}",
                        flush=True,
                    )


def main() -> None:
    """Measure and print."""
    if sys.argv[1:] == ["distance"]:
        distances()
        return

    done: list[Event] = []

    def keep(event: Event) -> None:
        if event.kind == "done" and event.operation == "create" and event.type.startswith("command:"):
            done.append(event)

    runner = find_engine(engine())
    print(runner.why)
    workspace = Workspace(PROJECT, STACK, stack_config(PROJECT, "dev"), ROOT / "bench")
    deployment = Deployment(workspace, runner, keep)
    lab_commands.prepare(deployment.written.profiles)
    alone = containers_alone()
    with tempfile.TemporaryDirectory() as folder:
        floor = empty_program(Path(folder))
    try:
        from_nothing = seconds_of(lambda: insist(deployment.up()))
        unchanged = seconds_of(lambda: insist(deployment.up()))
        memory = memory_mb(deployment.lab)
        down = seconds_of(lambda: insist(deployment.destroy()))
        with tempfile.TemporaryDirectory() as folder:
            bare = Deployment(Workspace(PROJECT, STACK, without_services(Path(folder)), ROOT / "bench"), runner, quiet)
            without = seconds_of(lambda: insist(bare.up()))
            insist(bare.destroy())
    finally:
        lab_commands.clear_away(deployment.lab)
    print(f"up from nothing {from_nothing:7.1f} s   {from_nothing / alone:5.1f} x the containers alone ({alone:.1f} s)")
    added = f"{from_nothing - without:+.1f} s, {from_nothing / without:.2f} x with {' and '.join(OPTIONAL)}"
    print(f"    without       {without:7.1f} s   {added}; load {', '.join(f'{load:.1f}' for load in os.getloadavg())}")
    for event in sorted(done, key=lambda event: -event.seconds):
        print(f"  {event.name:22}{event.seconds:7.1f} s")
    print(f"up unchanged      {unchanged:7.1f} s   {unchanged / floor:5.1f} x an empty program ({floor:.1f} s)")
    print(f"down              {down:7.1f} s")
    print(f"memory            {memory:7.0f} MB in the lab's containers")
    distances()


if __name__ == "__main__":
    main()
