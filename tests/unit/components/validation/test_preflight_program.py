"""Preflight as a job runs it: a command of one file, a ring of nodes, and the collector that root runs."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.validation.job_files import PROGRAM, job_program
from components.validation.preflight import adapters, collect, main, neighbour
from components.validation.preflight.checks import JOB, Machine, run
from components.validation.preflight.findings import CommandResult, Health, finding, line, read_health
from components.validation.preflight.gpus import read_preflight
from components.validation.preflight.neighbour import Neighbour, Peer
from tests.unit.fake_nvidia_smi import gpu, nvlink, xml

ASKED = {
    "nodes": {
        name: {"address": f"127.0.0.{number}", "site": "x" if name != "c1" else "y", "gpus": ""}
        for number, name in enumerate(("a1", "b1", "c1"), start=1)
    },
    "fabric": {"x": "lo", "y": ""},
}


def run_on(folder: Path, job: str, *nodes: str) -> dict[str, str]:
    """What the program prints on each node; they run side by side, without this checkout on Python's path."""
    program = folder / PROGRAM
    program.write_bytes(job_program())
    environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": job}
    running = {
        node: subprocess.Popen(
            [sys.executable, "-I", program, "preflight", json.dumps(ASKED)],
            env={**environment, "SLURMD_NODENAME": node}, cwd=folder, stdout=subprocess.PIPE, text=True,
        )
        for node in nodes
    }  # fmt: skip
    printed = {node: process.communicate(timeout=120)[0] for node, process in running.items()}
    assert all(process.returncode == 0 for process in running.values())
    return printed


def test_three_nodes_try_the_ways_to_one_another_and_find_nothing_wrong(tmp_path: Path) -> None:
    printed = run_on(tmp_path, "4711", "a1", "b1", "c1")
    assert all(text.count("\n") == 1 for text in printed.values())
    found = read_preflight("job started\n" + "".join(printed.values()))
    assert found.keys() == {"a1", "b1", "c1"}
    here = {item["severity"] for items in found.values() for item in items if item["check"] in ("MTU", "clock")}
    assert here == {"info"}
    seen = {node: [item["seen"] for item in items if item["check"] == "MTU"] for node, items in found.items()}
    ways = {(node, text.split(" in ")[0]) for node, texts in seen.items() for text in texts}
    # a1 and b1 share a fabric; between sites there is the tailnet alone.
    paths = ("a1", "b1", "tailscale0"), ("a1", "b1", "lo"), ("b1", "c1", "tailscale0"), ("c1", "a1", "tailscale0")
    assert ways == {(node, f"1 MiB to {peer} and back over {by}") for node, peer, by in paths}


def test_an_argument_that_names_no_node_is_a_finding_and_no_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "a1")
    for argument in ("", "{}", "[]", '{"nodes": {}}', '{"nodes": {"a1": 1}, "fabric": {}}', "[" * 9999):
        assert main.main([argument]) == 0, argument
        assert [item["check"] for item in read_preflight(capsys.readouterr().out)["a1"]] == ["preflight"], argument


def test_the_preflight_names_nodes_with_a_different_driver() -> None:
    versions = {"a": "580.95.05", "b": "580.95.05", "c": "535.54.03", "d": "580.95.05"}
    text = "\n".join(line(node, [finding("info", "GPU driver", version)]) for node, version in versions.items())
    found = read_preflight(text)
    assert [node for node, items in found.items() if items[0]["severity"] == "error"] == ["c"]
    assert found["c"][0]["seen"] == "535.54.03 here, 580.95.05 on 3 of 4 nodes"
    two = read_preflight("\n".join(text.splitlines()[1:3]))
    assert [node for node, items in two.items() if items[0]["severity"] == "error"] == ["c"]


def test_a_look_of_root_becomes_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = {
        "nvidia-smi": CommandResult(0, xml([gpu(0)])), "nvlink": CommandResult(0, nvlink(1)),
        "lspci": CommandResult(None, ""),
        "kernel": CommandResult(0, "NVRM: Xid (PCI:0000:10:00): 79, GPU has fallen off the bus."),
    }  # fmt: skip
    argument = {"nodes": {"a1": {"address": "", "site": "x", "gpus": "h200:2"}}, "fabric": {}}
    asked = main.task_of(json.dumps(argument), "a1")
    assert asked.gpus == 2
    found = {item["check"]: item["seen"] for item in run(Machine(asked.gpus, Health(int(time.time()), looks)), JOB)}
    assert found["GPU count"] == "nvidia-smi shows 1 of 2 GPUs (0000:10:00.0)"
    assert "Xid 79" in found["Xid"]
    assert "GPU health" not in found
    old = run(Machine(asked.gpus, Health(int(time.time()) - 7200, {})), JOB)
    assert "the last check of the GPUs is 120 minutes old" in [item["seen"] for item in old]
    assert any("the GPUs have not been checked" in item["seen"] for item in run(Machine(asked.gpus, None), JOB))


def test_a_check_that_fails_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object) -> Iterator[Any]:
        raise RuntimeError("nobody thought of it")

    monkeypatch.setattr(adapters, "check_ports", broken)
    found = run(Machine(0, None), JOB)
    assert [item["seen"] for item in found if item["check"] == "InfiniBand port"] == ["the check failed: RuntimeError"]


@pytest.fixture
def lossy() -> Iterator[Callable[[int], socket.socket]]:
    """Return a function that connects to a node that takes so many bytes and then nothing more."""
    here, there = socket.socketpair()
    stop = threading.Event()

    def connect(count: int) -> socket.socket:
        there.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

        def take() -> None:
            got = 0
            while got < count:
                got += len(there.recv(count - got))
            stop.wait(60)

        threading.Thread(target=take, daemon=True).start()
        return here

    yield connect
    stop.set()
    here.close()
    there.close()


def test_a_path_that_loses_a_mebibyte_is_found(
    lossy: Callable[[int], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbour, "STALL_SECONDS", 0.2)
    (found,) = neighbour.check_path(Peer("b1", "100.64.0.3"), "tailscale0", lossy(1300))
    assert (found["severity"], found["check"]) == ("error", "MTU")
    assert found["seen"] == "b1 answers over tailscale0, but 1 MiB does not get through: 0 of 1048576 bytes came back"
    assert "TS_DEBUG_MTU=1200" in found["remedy"]


def test_a_neighbour_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbour, "MEET_SECONDS", 0.1)
    (found,) = neighbour.check_neighbour(Peer("b1", "127.0.0.9"), "99", "a1", "")
    assert found["severity"] == "error"
    assert "b1 (127.0.0.9) does not answer on the tailnet" in found["seen"]


B1 = Peer("b1", "")


@contextmanager
def server(fabric: str = "") -> Iterator[neighbour.Server]:
    """The server of node b1 in job 1000."""
    made = neighbour.Server("b1", "1000", fabric)
    try:
        yield made
    finally:
        made.stop()


def meet(peer: Peer, job: str, limit: float, last: bool = True) -> Any:
    """Connect node a1 to a peer at a port of the job; return the connection and what the peer tells."""
    return neighbour.connect(peer, "127.0.0.1", neighbour.ports_of(job), job, "a1", limit, last=last)


def test_another_jobs_preflight_is_not_taken_for_this_ones() -> None:
    with server() as b1:
        assert meet(B1, "1001", 0.1) is None
        met = meet(B1, "1000", 5)
        assert met is not None
        assert [item["severity"] for item in neighbour.check_path(B1, "lo", met[0])] == ["info"]
        assert b1.served.wait(5)


def test_a_server_ignores_a_node_that_looks_for_another() -> None:
    with server() as b1:
        assert meet(Peer("c1", ""), "1000", 0.1) is None
        assert not b1.served.wait(0.5)


def test_a_fabric_is_tried_on_a_port_that_the_cluster_does_not_close_there() -> None:
    with server("127.0.0.1"):
        met = meet(B1, "1000", 5, last=False)
        assert met is not None
        assert met[1].fabric == "127.0.0.1"
        assert met[1].port not in range(neighbour.FIRST_PORT, neighbour.FIRST_PORT + neighbour.PORTS)
        found = list(neighbour.check_neighbour(Peer("b1", "127.0.0.1"), "1000", "a1", "lo"))
        assert [(item["severity"], "over lo" in item["seen"]) for item in found] == [("info", False), ("info", True)]


PERFTEST = Path(__file__).parents[3] / "fixtures/perftest"
# A program in perftest's place: the server ends after one client, which prints a table.
STUB = """#!{python}
import socket, sys
words = sys.argv
address = ("127.0.0.1", int(words[words.index("-p") + 1]))
if words[-1] == "--report_gbits":
    socket.create_server(address).accept()
else:
    socket.create_connection(address)
    print(open("{table}").read())
"""


@pytest.mark.parametrize(
    ("table", "rate", "severity", "text"),
    [
        ("ib_write_bw-400-infiniband", 400.0, "info", "mlx5_0/1 writes 391.2 of 400 Gb/s to b1"),
        ("ib_write_bw-400-infiniband", 800.0, "warning", "mlx5_0/1 writes 391.2 of 800 Gb/s to b1"),
        ("ib_write_bw-100-roce", 100.0, "info", "mlx5_0/1 writes 92.2 of 100 Gb/s to b1"),
    ],
)
def test_rdma_writes_between_neighbours_are_judged_by_the_ports_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, rate: float, severity: str, text: str
) -> None:
    program = tmp_path / neighbour.PERFTEST
    monkeypatch.setenv("PATH", f"{tmp_path}")
    up = adapters.Port("mlx5_0", 1, "ACTIVE", "LinkUp", rate, "InfiniBand", bus="0000:19:00.0")
    down = replace(up, device="mlx5_9", state="DOWN", bus="0000:18:00.0")
    ports = neighbour.speed_ports([up, down, replace(up, device="rdmap0", driver="efa")])
    assert [str(port) for _, port in ports] == ["mlx5_0/1"]
    (missing,) = neighbour.check_speed(Peer("b1", "127.0.0.1"), "7", ports)
    assert missing["seen"] == "UNJUDGED: perftest is not installed"
    assert neighbour.serve_speed("7", ports) == []
    program.write_text(STUB.format(python=sys.executable, table=PERFTEST / f"{table}.txt"))
    program.chmod(0o755)
    monkeypatch.setattr(neighbour, "SPEED_TRIES", 100)
    servers = neighbour.serve_speed("7", ports)
    (found,) = neighbour.check_speed(Peer("b1", "127.0.0.1"), "7", ports)
    assert (found["severity"], found["seen"]) == (severity, text)
    neighbour.end_servers(servers, 60)
    assert [server.returncode for server in servers] == [0]
    monkeypatch.setattr(neighbour, "SPEED_TRIES", 1)
    (silent,) = neighbour.check_speed(Peer("b1", "127.0.0.1"), "7", ports)
    assert silent["seen"] == "UNJUDGED: mlx5_0/1 to b1 could not be measured"


@pytest.mark.parametrize(
    ("ahead", "within", "severity"),
    [(0.2, 0.0, None), (1.4, 0.6, None), (-1.5, 0.1, "warning"), (90.0, 0.5, "error"), (-3600.0, 2.0, "error")],
)
def test_clocks_are_judged_as_far_as_the_way_lets_one_say(ahead: float, within: float, severity: str | None) -> None:
    found = list(neighbour.check_clock(Peer("b1", ""), Neighbour(ahead, within, "", 0)))
    assert [item["severity"] for item in found] == ([severity] if severity else [])


def test_the_collector_leaves_a_hanging_command_and_writes_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "LIMIT_SECONDS", 0.3)
    no_looks: dict[str, CommandResult] = {}
    wanted = {
        "nvidia-smi": lambda: collect.run("tail", "-f", "/dev/null"),
        "nvlink": lambda: collect.run("printf", "Link 0"),
        "lspci": lambda: collect.run(str(tmp_path / "none")),
        "kernel": lambda: collect.matching_lines(
            CommandResult(0, "x\nNVRM: Xid (PCI:0000:01:00): 79\ny"), collect._EVENT, 9
        ),
        "mlxconfig": lambda: no_looks["x"],
    }
    path = tmp_path / "run" / "health.json"
    collect.write(path, collect.collect(wanted))
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o644, 0o755)
    health = read_health(path.read_text())
    assert health is not None
    assert {name: (look.status, look.output) for name, look in health.results.items() if name not in ("lspci",)} == {
        "nvidia-smi": (None, ""), "nvlink": (0, "Link 0"), "kernel": (0, "NVRM: Xid (PCI:0000:01:00): 79"),
        "mlxconfig": (126, "KeyError('x')"),
    }  # fmt: skip
    assert health.results["lspci"].status == 127


def test_the_collector_starts_no_second_hanging_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, state in (("7", "(nvidia-smi) D 1 7"), ("8", "(bash) D 1 8"), ("9", "(nvidia-smi) S 1 9")):
        (tmp_path / number).mkdir()
        (tmp_path / number / "stat").write_text(f"{number} {state}")
    assert collect.waiting("nvidia-smi", tmp_path) == {"7"}
    monkeypatch.setattr(collect, "WAITING_SECONDS", 0)
    monkeypatch.setattr(collect, "waiting", lambda _name: {"7"})
    assert collect.nvidia_smi("-L", as_nobody=False).status is None


def test_the_first_look_at_gpus_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([None, None, Health(1, {})])
    monkeypatch.setattr(main, "health_of", lambda _path: next(answers))
    monkeypatch.setattr(main, "stdout_of", lambda *_words: "activating\n")
    assert main.health_soon(tmp_path, 8) == Health(1, {})
    monkeypatch.setattr(main, "health_of", lambda _path: None)
    assert main.health_soon(tmp_path, 0) is None


@pytest.mark.parametrize("state", ["failed\n", "inactive\n", ""])
def test_a_dead_look_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    asked: list[tuple[str, ...]] = []

    def stdout_of(*words: str) -> str:
        asked.append(words)
        return state

    monkeypatch.setattr(main, "stdout_of", stdout_of)
    monkeypatch.setattr("time.sleep", lambda _seconds: pytest.fail("it waits"))
    assert main.health_soon(tmp_path / "health.json", 8) is None
    assert asked == [("systemctl", "is-active", "tailrack-health.service")]
