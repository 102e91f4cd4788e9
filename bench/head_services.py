"""Memory and idle CPU that the optional services cost the head node.

Brings up a lab of a head node and two nodes, lets it rest, and looks for some minutes at what the head node's container
uses; then with monitoring, a receiver of alerts, prices and MLflow switched on, and with Grafana where TAILRACK_GRAFANA
is the path of its archive, the same again; MLflow was asked before. Printed: CPU in per cent of a
core, memory that is not cache, the difference, and what each service uses of both. CPU seconds of a machine with other
things to do are dearer: the load is printed. Nothing is judged. PyPI has to be in reach, for MLflow's packages.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import yaml

from bench.up_times import engine, insist
from cli import lab_commands
from cli.pulumi.deployment import Deployment, stack_config
from cli.pulumi.find_engine import find_engine
from cli.pulumi.workspace import PROJECT, Workspace
from lab.identity import container_name
from tests.lab.wheels import mlflow_wheels

STACK, HEAD = "seeing", "head"
REST_SECONDS, LOOK_SECONDS = 45, 120
# No alert fires, and no mail server exists.
RECEIVER = {
    "kind": "mail",
    "to": "ops@example.org",
    "sender": "lab@example.org",
    "smarthost": "127.0.0.1:2525",
    "encrypted": False,
}
# PSS in KiB, hundredths of CPU seconds and unit of each process.
SHARES = r"""
for folder in /proc/[0-9]*; do
    share=$(awk '$1 == "Pss:" { print $2 }' "$folder/smaps_rollup" 2>/dev/null)
    spent=$(sed 's/.*) //' "$folder/stat" 2>/dev/null | awk '{ print $12 + $13 }')
    unit=$(grep -oE '[^/]+\.(service|scope)$' "$folder/cgroup" 2>/dev/null | tail -n 1)
    [ -z "$share" ] || echo "$share ${spent:-0} ${unit:-none}"
done"""
MLFLOW = "/usr/local/lib/tailrack/mlflow-program/bin/python"
WHEELS, ARCHIVE = "/srv/mlflow-wheels", "/root/grafana.tar.gz"
GRAFANA = os.environ.get("TAILRACK_GRAFANA", "")


@dataclass(frozen=True)
class Use:
    """A machine's use: per cent of a core and bytes without cache; both by unit, the bytes as KiB of PSS."""

    cpu: float
    memory: int
    cpu_of: dict[str, float]
    memory_of: Counter[str]


def counters(container: Any) -> tuple[float, int]:
    """CPU seconds so far, and bytes that are not cache, of a container."""
    stats = container.stats(stream=False)
    kinds = stats["memory_stats"]["stats"]
    # Names of the first and of the second version of cgroups.
    return stats["cpu_stats"]["cpu_usage"]["total_usage"] / 1e9, kinds.get("total_rss", kinds.get("anon", 0))


def shares(container: Any) -> tuple[dict[str, float], Counter[str]]:
    """CPU seconds so far of the processes that are there, and KiB of PSS, by unit."""
    seconds: dict[str, float] = defaultdict(float)
    memory: Counter[str] = Counter()
    for line in container.exec_run(["bash", "-c", SHARES]).output.decode().splitlines():
        share, spent, unit = line.split(" ", 2)
        memory[unit] += int(share)
        seconds[unit] += int(spent) / 100
    return seconds, memory


def look(container: Any) -> Use:
    """Let it rest, then look at it for a while."""
    time.sleep(REST_SECONDS)
    spent, _ = shares(container)
    (before, _), begun = counters(container), time.monotonic()
    time.sleep(LOOK_SECONDS)
    (after, memory), lasted = counters(container), time.monotonic() - begun
    spent_then, memory_of = shares(container)
    cpu_of = {unit: 100 * (now - spent[unit]) / lasted for unit, now in spent_then.items()}
    return Use(100 * (after - before) / lasted, memory, cpu_of, memory_of)


def tell(label: str, use: Use) -> None:
    """Print the result."""
    print(
        f"  {label:28} {use.cpu:5.2f} % of a core   {use.memory / 2**20:6.0f} MiB   load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def put(container: Any, folder: Path, place: str) -> None:
    """Copy a folder's files to a place in the container, as root's."""
    packed = subprocess.run(["tar", "-C", folder, "-c", "--owner=0", "--group=0", "."], check=True, capture_output=True)
    container.exec_run(["mkdir", "-p", place])
    container.put_archive(place, packed.stdout)


def everything(container: Any) -> dict[str, Any]:
    """Return the sections of a config with every service; copy their files to the head node."""
    put(container, mlflow_wheels(), WHEELS)
    monitoring: dict[str, Any] = {"receivers": [RECEIVER]}
    if GRAFANA:
        subprocess.run(["docker", "cp", "-q", GRAFANA, f"{container.name}:{ARCHIVE}"], check=True)
        digest = hashlib.sha256(Path(GRAFANA).read_bytes()).hexdigest()
        monitoring["grafana"] = {"source": ARCHIVE, "sha256": digest}
    return {"tailrack:monitoring": monitoring, "tailrack:mlflow": {"index": WHEELS}}


def ask_once(container: Any) -> None:
    """Load each page once, so that memory that is allocated on use counts."""
    login = ["su", "-", "ada", "-c"]
    ask = f"{MLFLOW} -c 'import mlflow; print(mlflow.search_experiments()[0].name)'"
    result = container.exec_run([*login, f"MLFLOW_TRACKING_URI=http://$(tailscale ip -4):5000 {ask}"])
    if result.exit_code:
        raise SystemExit(result.output.decode())


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
        lab_commands.prepare(first.written.profiles)
        try:
            insist(first.up())
            container = docker.from_env().containers.get(container_name(first.lab, HEAD))
            print(f"the head node, {LOOK_SECONDS} s at rest:", flush=True)
            without = look(container)
            tell("without any of it", without)
            # As systemd does on a machine; Docker's root hides the mounts of a unit, also its credentials.
            container.exec_run(["mount", "--make-rshared", "/"])
            config["config"] |= everything(container)
            site["pools"][0]["price_per_hour"] = 2.5
            insist(deployment().up())
            ask_once(container)
            seeing = look(container)
            tell(f"with everything{'' if GRAFANA else ' but Grafana'}", seeing)
            print(
                f"  {'more':28} {seeing.cpu - without.cpu:5.2f} % of a core   "
                f"{(seeing.memory - without.memory) / 2**20:6.0f} MiB"
            )
            for unit, share in (seeing.memory_of - without.memory_of).most_common(8):
                cpu = seeing.cpu_of[unit] - without.cpu_of.get(unit, 0)
                print(f"    {unit:40} {cpu:5.2f} %   {share / 1024:6.0f} MiB more")
        finally:
            lab_commands.clear_away(first.lab)


if __name__ == "__main__":
    main()
