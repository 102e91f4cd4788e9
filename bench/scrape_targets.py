"""Cost of 100 scrape targets for a real Prometheus, compared with 10; the targets are simulated on loopback.

Each answers what a real node exporter says of this machine, and what tailrack adds on a node with 8 GPUs that speaks
with 100 others; every answer has other values. Prometheus has the role's own configuration, asks once in 4 seconds
instead of 30, and is given 10 targets, then 100. Printed of each: how long before each other all have answered last,
whether one has ever failed to, the sum and the longest of the answers' seconds, CPU seconds a round, and memory. Needs
prometheus and prometheus-node-exporter on PATH (Debian's packages of these names). Nothing is judged.
"""

from __future__ import annotations

import gzip
import http.server
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.roles.monitoring.accepted_series import HEAD, metric_relabel_configs
from components.roles.monitoring.exposition import exposition
from components.roles.monitoring.machine_figures import gpu_figures, tailnet_figures
from components.roles.role import FOLDER, template

PROGRAMS = ("prometheus", "prometheus-node-exporter")
COUNTS = (10, 100)
GPUS, PEERS = 8, 100
ROUND_SECONDS, ROUNDS, LIMIT_SECONDS = 4, 8, 60
VARIANTS = 8
GPU = "{0}, NVIDIA H200, 97, 120000, 143771, 61, 612.5, 0"


@dataclass(frozen=True)
class Cost:
    """Figures for one number of targets: see the head of this file. `samples` are those of one round."""

    targets: int
    spread_seconds: float
    well: bool
    sum_seconds: float
    longest_seconds: float
    samples: int
    cpu_seconds: float
    memory: int


def free_port() -> int:
    """Return a free TCP port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def get(port: int, path: str) -> bytes:
    """Return the answer of a port on loopback."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return bytes(answer.read())


def answer() -> str:
    """One node's answer: of a real exporter, and of tailrack's readers."""
    port = free_port()
    with ended(["prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]):
        exporter_text = wait(lambda: get(port, "/metrics")).decode()
    peers = {f"100.64.0.{number}": f"node-{number}" for number in range(1, PEERS)}
    status = {
        address: {"TailscaleIPs": [address], "RxBytes": 10**9, "TxBytes": 10**9, "Active": True, "CurAddr": "x"}
        for address in peers
    }
    own_metrics = [
        *gpu_figures("\n".join(GPU.format(number) for number in range(GPUS))),
        *tailnet_figures(json.dumps({"Peer": status}), peers),
    ]
    return exporter_text + exposition(own_metrics)


def variants(text: str) -> list[bytes]:
    """The answer with other values each time, packed as an exporter packs it."""

    def other(each: int) -> str:
        return re.sub(r"(?m)(?<= )(\d[\d.e+]*)$", lambda match: f"{float(match[1]) + each}", text)

    return [gzip.compress(other(each).encode(), 1) for each in range(VARIANTS)]


class Nodes(http.server.ThreadingHTTPServer):
    """A node at an address of loopback."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that has gone."""


@contextmanager
def played(text: str) -> Iterator[int]:
    """Nodes at 127.0.1.1 and the addresses that follow; the port they have."""
    turn, packed, port = itertools.count(), variants(text), free_port()

    class Node(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = packed[next(turn) % VARIANTS]
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ExitStack() as servers:
        for number in range(1, max(COUNTS) + 1):
            server = servers.enter_context(Nodes((f"127.0.1.{number}", port), Node))
            servers.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, daemon=True).start()
        yield port


@contextmanager
def ended(command: list[str]) -> Iterator[int]:
    """A program that runs meanwhile; its number."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process.pid
        finally:
            process.terminate()


def wait(look: Any) -> Any:
    """Retry a query until it returns a value."""
    began = time.monotonic()
    while time.monotonic() < began + LIMIT_SECONDS:
        with suppress(OSError):
            if value := look():
                return value
        time.sleep(0.1)
    raise TimeoutError(f"nothing within {LIMIT_SECONDS} s")


def configuration(folder: Path, own_port: int, nodes_port: int) -> str:
    """The role's own, with other addresses, and asked more often."""
    text = template("monitoring", "prometheus.yml").replace("@ADDRESS@:@PORT@", f"127.0.0.1:{own_port}")
    text = text.replace("@HEAD@", "head").replace("@CLUSTER@", "bench")
    text = text.replace("/etc/tailrack/prometheus/rules.yml", str(FOLDER / "monitoring" / "templates" / "rules.yml"))
    text = re.sub("_interval: 30s", f"_interval: {ROUND_SECONDS}s", text).replace(
        "timeout: 10s", f"timeout: {ROUND_SECONDS}s"
    )
    script = (FOLDER / "monitoring" / "services.sh").read_text(encoding="utf-8")
    command = ["bash", "-c", f"{script}\nTARGETS_DIR=$1; scrape_job node $2", "-", str(folder), str(nodes_port)]
    accepted = {**os.environ, "MONITORING_ACCEPTED": metric_relabel_configs().replace(HEAD, "head")}
    return text + "\n" + subprocess.run(command, check=True, capture_output=True, text=True, env=accepted).stdout


def used(process: int) -> tuple[float, int]:
    """CPU seconds and bytes of memory of a process."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds, int(fields[21]) * os.sysconf("SC_PAGE_SIZE")


def measure(count: int, folder: Path, nodes_port: int) -> Cost:
    """Ask so many."""
    port = free_port()
    for number in range(1, count + 1):
        target = [{"targets": [f"127.0.1.{number}"], "labels": {"instance": f"node-{number}", "site": "rack"}}]
        (folder / f"node-{number}.json").write_text(json.dumps(target), encoding="utf-8")
    (folder / "prometheus.yml").write_text(configuration(folder, port, nodes_port), encoding="utf-8")
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data-{count}"]

    def value(expression: str) -> float:
        samples = json.loads(get(port, f"/api/v1/query?query={urllib.parse.quote(expression)}"))["data"]["result"]
        return float(samples[0]["value"][1]) if samples else 0.0

    with ended([*command, f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]) as process:
        wait(lambda: value('sum(up{job="node"})') == count)
        before, _ = used(process)
        # This adds no load to the measurement: the program's own queries come afterwards.
        time.sleep(ROUNDS * ROUND_SECONDS)
        seconds, memory = used(process)
        span = f"{ROUNDS * ROUND_SECONDS}s"
        return Cost(
            count,
            value('max(timestamp(up{job="node"})) - min(timestamp(up{job="node"}))'),
            bool(value(f'min(min_over_time(up{{job="node"}}[{span}]))')),
            value('sum(scrape_duration_seconds{job="node"})'),
            value(f'max(max_over_time(scrape_duration_seconds{{job="node"}}[{span}]))'),
            round(value('sum(scrape_samples_scraped{job="node"})')),
            (seconds - before) / ROUNDS,
            memory,
        )


def main() -> None:
    """Measure and print."""
    if missing := [name for name in PROGRAMS if not shutil.which(name)]:
        print(f"what 100 nodes cost Prometheus: not measured without {' and '.join(missing)} on PATH")
        return
    print(f"Prometheus asks nodes once in {ROUND_SECONDS} s, load {os.getloadavg()[0]:.1f}:", flush=True)
    costs = []
    with played(answer()) as nodes_port:
        for count in COUNTS:
            with tempfile.TemporaryDirectory() as name:
                cost = measure(count, Path(name), nodes_port)
            costs.append(cost)
            print(
                f"  {cost.targets:4} nodes, {cost.samples:7,} figures: all answer within {cost.spread_seconds:.1f} s, "
                f"{'none has failed' if cost.well else 'some have failed'}; the longest answer took "
                f"{cost.longest_seconds:.3f} s, all together {cost.sum_seconds:.3f} s; "
                f"{cost.cpu_seconds:.3f} CPU s a round; {cost.memory / 2**20:.0f} MiB",
                flush=True,
            )
    few, many = costs
    print(
        f"  {many.targets // few.targets} times the nodes: {many.sum_seconds / few.sum_seconds:.1f} times the seconds "
        f"of answers, {many.cpu_seconds / max(few.cpu_seconds, 0.01):.1f} times the CPU, "
        f"{many.memory / few.memory:.1f} times the memory"
    )


if __name__ == "__main__":
    main()
