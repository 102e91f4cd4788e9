"""What it costs the head node to see everything: memory, and CPU when nothing happens.

Brings up a lab of a head node and two nodes, lets it rest, and looks for some minutes at what the head node's container
uses; then with monitoring, a receiver of alerts and prices switched on, with `sll` watched once before, the same again.
Printed: CPU in per cent of a core, memory that is not cache, the difference, and the largest of the services by their
share of memory (PSS). CPU seconds of a machine with other things to do are dearer: the load is printed. Nothing is
judged.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import yaml

from bench.up_times import engine, insist
from driver import lab_commands
from driver.deployment import Deployment, stack_config
from driver.find_engine import find_engine
from driver.workspace import PROJECT, Workspace
from lab.identity import container_name

STACK, HEAD = "seeing", "head"
REST_SECONDS, LOOK_SECONDS = 45, 120
# Nobody is told anything: there is no alert, and no mail server.
RECEIVER = {
    "kind": "mail",
    "to": "ops@example.org",
    "sender": "lab@example.org",
    "smarthost": "127.0.0.1:2525",
    "encrypted": False,
}
# PSS in KiB and unit of each process.
SHARES = r"""
for folder in /proc/[0-9]*; do
    share=$(awk '$1 == "Pss:" { print $2 }' "$folder/smaps_rollup" 2>/dev/null)
    unit=$(grep -oE '[^/]+\.(service|scope)$' "$folder/cgroup" 2>/dev/null | tail -n 1)
    [ -z "$share" ] || echo "$share ${unit:-none}"
done"""


@dataclass(frozen=True)
class Use:
    """What a machine uses: per cent of a core, bytes that are not cache, and KiB by unit."""

    cpu: float
    memory: int
    units: Counter[str]


def counters(container: Any) -> tuple[float, int]:
    """CPU seconds so far, and bytes that are not cache, of a container."""
    told = container.stats(stream=False)
    kinds = told["memory_stats"]["stats"]
    # Names of the first and of the second version of cgroups.
    return told["cpu_stats"]["cpu_usage"]["total_usage"] / 1e9, kinds.get("total_rss", kinds.get("anon", 0))


def look(container: Any) -> Use:
    """Let it rest, then look at it for a while."""
    time.sleep(REST_SECONDS)
    (before, _), begun = counters(container), time.monotonic()
    time.sleep(LOOK_SECONDS)
    (after, memory), lasted = counters(container), time.monotonic() - begun
    units: Counter[str] = Counter()
    for line in container.exec_run(["bash", "-c", SHARES]).output.decode().splitlines():
        share, _, unit = line.partition(" ")
        units[unit] += int(share)
    return Use(100 * (after - before) / lasted, memory, units)


def tell(what: str, use: Use) -> None:
    """Print what was seen."""
    print(
        f"  {what:24} {use.cpu:5.2f} % of a core   {use.memory / 2**20:6.0f} MiB   load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    config = yaml.safe_load(stack_config(PROJECT, "dev").read_text(encoding="utf-8"))
    site: dict[str, Any] = {"name": "rack", "kind": "lab", "pools": [{"name": "n", "count": 2}]}
    config["config"] |= {"tailrack:sites": [site], "tailrack:head": {"name": HEAD, "site": "rack"}}
    config["config"]["tailrack:validation"]["floors_gb_per_s"] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def deployment() -> Deployment:
            file = folder / f"Pulumi.{STACK}.yaml"
            file.write_text(yaml.safe_dump(config), encoding="utf-8")
            workspace = Workspace(PROJECT, STACK, file, folder / "state")
            return Deployment(workspace, find_engine(engine()), lambda event: None)

        first = deployment()
        lab_commands.prepare(first.profiles)
        try:
            insist(first.up())
            container = docker.from_env().containers.get(container_name(first.lab, HEAD))
            print(f"the head node, {LOOK_SECONDS} s at rest:", flush=True)
            without = look(container)
            tell("without monitoring", without)
            # As systemd does on a machine; Docker's root hides what it mounts for a unit, its credentials among it.
            container.exec_run(["mount", "--make-rshared", "/"])
            config["config"]["tailrack:monitoring"] = {"receivers": [RECEIVER]}
            site["pools"][0]["price_per_hour"] = 2.5
            insist(deployment().up())
            container.exec_run(["su", "-", "ada", "-c", "sll --json"])
            seeing = look(container)
            tell("with all that sees", seeing)
            print(
                f"  {'more':24} {seeing.cpu - without.cpu:5.2f} % of a core   "
                f"{(seeing.memory - without.memory) / 2**20:6.0f} MiB"
            )
            for unit, share in (seeing.units - without.units).most_common(6):
                print(f"    {unit:40} {share / 1024:6.0f} MiB more")
        finally:
            lab_commands.clear_away(first.lab)


if __name__ == "__main__":
    main()
