"""The page of `make report`: what the terminal shows, nothing from elsewhere, and what nodes say as words alone."""

import io
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli.report import overall, tables
from cli.report.chart import BOTTOM, HEIGHT, LEFT, TOP, WIDTH, chart
from cli.report.facts import pairs
from cli.report.last_run import LastRun
from cli.report.page import page
from components.validation.model import JobReport, Measurement
from components.validation.verdict import judge
from tests.unit.cli.test_report import ASKED, BUSY

FIXTURES = Path(__file__).parents[2] / "fixtures" / "nccl_tests"
MIB = 2**20
EVIL = (
    "</td><script src=https://evil.example/x.js></script><img src=x onerror=alert(1)>\" style='x' {{ 7*7 }}"
    "[/red]\x1b[2J\udcff&lt;"
)


def measured(name: str, sizes: tuple[int, int], nodes: list[str], **changes: Any) -> dict[str, Any]:
    """The result of a real output, with what the newer contract adds."""
    text = (FIXTURES / f"{name}.txt").read_text()
    asked = Measurement(
        backend="nccl-tests", min_bytes=sizes[0] * MIB, max_bytes=sizes[1] * MIB, factor=4, iterations=20, warmup=1,
        gate_bytes=sizes[1] * MIB, ranks=2, nodes=len(nodes), floor_gb_per_s=changes.pop("floor", None),
    )  # fmt: skip
    told = {"job_id": 1, "state": "COMPLETED", "exit_code": 0, "seconds": 9.5, "nodes": nodes, "output": text}
    result: dict[str, Any] = {**judge(asked, JobReport.from_json(told))}
    return {**result, "collective": "all_reduce", "gpus": dict.fromkeys(nodes, "h200:1"), **changes}


def node(name: str, site: str, path: str) -> dict[str, Any]:
    facts = {"tailnet_ip": "100.64.0.1", "cpus": 2, "memory_mb": 1024, "gpus": 1, "slurm_version": "24.11.5"}
    return {"name": name, "site": site, "path": path, **facts, "tailscale_version": "1.102.5"}


def finding(severity: str, check: str, seen: str, remedy: str = "") -> dict[str, str]:
    return {"severity": severity, "check": check, "seen": seen, "remedy": remedy}


@pytest.fixture
def outputs() -> dict[str, Any]:
    path = finding("info", "tailnet path", "c is reached through a relay")
    slow = {"nodes": ["b"], "busbw_gb_per_s": 1.0, "reference_gb_per_s": 4.0, "reason": "b gave 1 GB/s with a."}
    rack = measured(
        "nccl-tests-2.19-2x1-H200-slurm-eth0", (1, 1024), ["a", "b"], floor=4.5,
        spread={"runs": [3.9, 4.0, 4.1], "relative": 0.05}, floor_source="measured floors of 2026-11-21",
        expected_transport="InfiniBand",
        preflight={"a": [path, finding("error", "ECC", "2 errors", "reset")]}, suspects=[slow],
    )  # fmt: skip
    alone = measured("nccl-tests-2.19-1x2-H200-nvlink-nvls-off", (8, 8192), ["c"], floor=311.5)
    between = measured("nccl-tests-2.19-2x1-H200-slurm-tailscale0", (1, 256), ["a", "c"])
    of_rack = [node(name, "rack", path) for name, path in (("head", "self"), ("a", "direct"), ("b", "direct"))]
    nodes = [*of_rack, node("c", "box", "relay")]
    return {
        "busbw_gb_per_s": between["busbw_gb_per_s"],
        "cluster": {"name": "gpus", "control_address": "100.64.0.1", "partitions": ["all"], "nodes": nodes},
        "validation": {"node": {"c": alone}, "rack": rack, "cross-site": between},
    }


class Read(HTMLParser):
    """What a browser would make of a page: its elements with their attributes, and its words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":  # the one element here that has no end
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def read(outputs: dict[str, Any]) -> Read:
    return Read(page(outputs, "prod", "2026-11-21 18:00 UTC"))


def test_the_page_has_the_figures_that_the_terminal_has(outputs):
    console = Console(record=True, width=500, file=io.StringIO(), markup=False)
    tables.show(console, outputs)
    terminal = console.export_text()
    words = " ".join(read(outputs).words.split())
    texts = ["b gave 1 GB/s with a.", "GB/s, within 5.0% of one another", "2 errors", "reset"]
    for figure in ("346.10", "311.50", "3.95", "0.81889", *texts):
        assert figure in terminal, figure
        assert figure in words, figure
    assert "sockets over eth0, not InfiniBand" in words
    assert "The floor: measured floors of 2026-11-21." in words


def test_the_page_loads_and_runs_nothing(outputs):
    found = read(outputs)
    names = {name for name, _ in found.elements}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "form"}
    assert not names & {"a", "base", "use", "image", "foreignobject"}
    attributes = {key for _, attributes in found.elements for key in attributes}
    assert not {key for key in attributes if key.startswith("on") or key in ("src", "href", "xlink:href", "action")}
    text = page(outputs, "prod", "now")
    assert [part for part in ("http://", "https://", "url(", "@import") if part in text] == []
    policies = [attributes.get("content") for name, attributes in found.elements if name == "meta"]
    assert "default-src 'none'; style-src 'unsafe-inline'" in policies


def test_the_output_of_a_node_stays_text(outputs):
    clean = read(outputs)
    outputs["cluster"]["name"] = outputs["cluster"]["nodes"][1]["slurm_version"] = EVIL
    rack = outputs["validation"]["rack"]
    rack["reason"] = rack["transport"] = rack["interface"] = rack["floor_source"] = rack["backend"] = EVIL
    rack["verdict"] = "FAIL"
    rack["preflight"]["a"][1] = dict.fromkeys(("severity", "check", "seen", "remedy"), EVIL)
    rack["suspects"][0]["reason"] = EVIL + "!"
    outputs["validation"]["z" + EVIL] = outputs["validation"].pop("cross-site")
    found = read(outputs)
    assert [name for name, _ in found.elements] == [name for name, _ in clean.elements]
    assert [sorted(attributes) for _, attributes in found.elements] == [sorted(a) for _, a in clean.elements]
    assert "<script src=https://evil.example/x.js>" in found.words
    assert "{{ 7*7 }}" in found.words
    page(outputs, "prod", "now").encode()


def test_the_output_of_a_node_moves_no_cursor(outputs, capsys):
    rack = outputs["validation"]["rack"]
    rack["reason"] = rack["transport"] = rack["interface"] = outputs["cluster"]["nodes"][1]["slurm_version"] = EVIL
    outputs["validation"]["node"]["c"]["transport"] = EVIL
    outputs["validation"]["rack"]["preflight"]["a"][1]["seen"] = EVIL
    console = Console(width=200, file=None, force_terminal=False, markup=False)
    tables.show(console, outputs)
    assert "\x1b" not in capsys.readouterr().out


def test_every_chart_stays_in_its_frame_with_its_floor_in_place(outputs):
    scopes = outputs["validation"]
    for result in (scopes["rack"], scopes["node"]["c"], scopes["cross-site"]):
        drawn = chart(result)
        assert drawn is not None
        assert len(drawn["out_of_place"]) == len(result["rows"])
        for point in (*drawn["out_of_place"], *drawn["in_place"]):
            assert LEFT <= point["x"] <= WIDTH
            assert TOP <= point["y"] <= HEIGHT - BOTTOM
        gate = drawn["out_of_place"][-1]
        if drawn["floor"]:
            assert (drawn["floor"]["y"] < gate["y"]) == (result["floor_gb_per_s"] > result["busbw_gb_per_s"])
            assert drawn["floor"]["left"] <= gate["x"] <= drawn["floor"]["right"]
    assert outputs["validation"]["cross-site"]["floor_gb_per_s"] is None


def test_a_scope_that_was_not_measured_says_so(outputs):
    outputs["validation"] = {"rack": {**judge(ASKED, JobReport.from_json(BUSY))}}
    words = read(outputs).words
    assert "Not measured." in words
    assert "job 12 of ada" in words
    assert "None" not in words


def test_each_pair_shows_its_path_and_its_traffic(outputs):
    preflight = outputs["validation"]["rack"]["preflight"]
    preflight["a"] += [
        finding("info", "tailnet traffic", "c by peer-relay: 2500000 B sent, 999 B received"),
        finding("info", "tailnet traffic", "head by idle: 1 B sent, 0 B received"),
        finding("info", "tailnet traffic", "nobody by direct: 1 B sent, 0 B received"),
        finding("info", "tailnet traffic", "a by direct: 1 B sent, 0 B received"),
        finding("info", "tailnet traffic", "b by <b>: 1 B sent, 0 B received"),
    ]
    told = [(pair.first, pair.second, pair.path, pair.carried) for pair in pairs(outputs)]
    assert told == [
        ("a", "head", "direct", "1 B to head, 0 B to a"),
        ("head", "b", "direct", "not known"),
        ("head", "c", "relay", "not known"),
        ("a", "c", "peer-relay", "2.5 MB to c, 999 B to a"),
    ]
    # A pool's nodes are others than the head node, and it may have none.
    nodes = [{"name": name, "path": "direct"} for name in ("e1", "e2")]
    assert not any(pairs({"cluster": {"head": "head", "nodes": nodes[:count]}, "validation": {}}) for count in (0, 2))
    words = read(outputs).words
    assert "2.5 MB to c, 999 B to a" in words
    assert "tailnet traffic" not in words


TRAINED = {
    "verdict": "UNSTABLE", "reason": "Trained 900.0 images per second and GPU, but its runs differ by 40%.",
    "device": "GPU", "devices": ["NVIDIA H200"], "images_per_second": 1800.0, "images_per_second_per_rank": 900.0,
    "jitter": 0.2, "floor_images_per_second": None, "spread": {"runs": [1.0, 2.0], "relative": 0.4}, "ranks": 2,
    "nodes": ["a", "b"], "how": {"width": 64, "pixels": 224, "precision": "bf16", "torch": "2.9"},
}  # fmt: skip


def test_an_unstable_training_is_on_the_page_and_decides_its_overall_verdict(outputs):
    for result in (outputs["validation"]["rack"], outputs["validation"]["cross-site"]):
        result["verdict"] = "PASS"
    outputs["validation"]["node"]["c"]["verdict"] = "PASS"
    assert overall.overall(outputs) == "PASS"
    outputs["training"] = TRAINED
    assert overall.overall(outputs) == "UNSTABLE"
    assert overall.bad(outputs) == ["training"]
    words = " ".join(read(outputs).words.split())
    assert "UNSTABLE overall verdict" in words
    assert "UNSTABLE training" in words
    assert "1,800.0" in words
    assert str(TRAINED["reason"]) in words
    outputs["training"] = {**TRAINED, "verdict": "BUSY", "retries": overall.MOST_BUSY}
    assert overall.bad(outputs) == ["training"]


def test_a_page_made_after_a_failed_run_says_so_and_is_not_green(outputs):
    sentence = "The last 'make up STACK=prod', started 2026-11-20 08:00 UTC, failed: a1: users, share, slurmd."
    words = " ".join(Read(page(outputs, "prod", "2026-11-21 18:00 UTC", None, sentence)).words.split())
    assert "FAIL overall verdict" in words
    assert sentence in words


def test_the_last_run_is_remembered_until_one_ends_well(tmp_path):
    run = LastRun(tmp_path, "prod")
    assert run.sentence() == ""
    run.begin()
    assert "did not finish" in LastRun(tmp_path, "prod").sentence()
    run.end(["a1: users, share, slurmd"])
    assert "failed: a1: users, share, slurmd." in run.sentence()
    run.end([])
    assert run.sentence() == ""
