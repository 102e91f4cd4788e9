"""Role monitoring: units and files on the head node and on nodes, a target a member, and nothing of it afterwards."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from components.node import daemons
from components.node.step.step import Step
from components.roles.monitoring.monitoring.host import forget
from components.roles.order import roles
from components.roles.role import Role, Value
from components.steps.composition import compose
from stacks.config import parse
from tests.unit.configs import LAB
from tests.unit.shell import Shell, assert_ok, script_of, stub_daemons

EXPORTER = "/etc/systemd/system/tailrack-node-exporter.service"
CONFIG, RULES = "/etc/tailrack/prometheus/prometheus.yml", "/etc/tailrack/prometheus/rules.yml"
TARGETS = "/var/lib/tailrack/monitoring/targets"
TRACES = (EXPORTER, "/etc/tailrack/node-exporter", "/usr/local/lib/tailrack/figures", "/var/lib/tailrack/metrics")
A1: dict[str, Value] = {"node_name": "a1", "node_site": "rack", "node_address": "100.64.0.3"}
HEAD: dict[str, Value] = {"node_name": "head", "node_site": "rack", "head_address": "100.64.0.1"}


def header(**section: int) -> dict[str, Value]:
    """What the role gives its scripts where the config asks for it."""
    made = roles(parse({**LAB, "monitoring": section}, base_dir=Path()))
    return next({**role.values, **role.texts} for role in made if role.name == "monitoring")


@pytest.fixture
def host(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A machine on which units are active once they were started, whose daemons answer, and whose ports are free."""
    monkeypatch.setattr(daemons, "answers", lambda daemon: True)
    return stub_daemons(shell, "promtool")


def step(shell: Shell, role: str, phase: str, values: Mapping[str, Value], action: str = "up") -> list[str]:
    """Run a phase that succeeds; return the programs that it started."""
    before, script = len(shell.calls), script_of(role, phase)
    texts = {name: str(values[name]) for name in script.texts.keys() & values.keys()}
    assert_ok(shell.step(script.with_texts(texts), {**header(), **values}, action))
    return shell.calls[before:]


def services(shell: Shell, **more: Value) -> list[str]:
    """Run the head node's phase; what systemd was told to begin and end in it."""
    words = ("systemctl st", "systemctl re", "systemctl disable")
    others = ("reset-failed", "tailrack-firewall")
    return [
        call
        for call in step(shell, "monitoring", "services", {**HEAD, **more})
        if call.startswith(words) and not any(each in call for each in others)
    ]


def test_the_head_node_asks_itself_and_a_second_run_restarts_nothing(host: Shell) -> None:
    first = services(host)
    assert "systemctl restart tailrack-node-exporter.service" in first
    assert "systemctl restart tailrack-prometheus.service" in first
    assert json.loads(host.path(f"{TARGETS}/head.json").read_text()) == [
        {"targets": ["100.64.0.1"], "labels": {"instance": "head", "site": "rack"}}
    ]
    config = host.path(CONFIG).read_text()
    assert 'targets: ["100.64.0.1:9090"]' in config
    job = yaml.safe_load(config)["scrape_configs"][1]
    assert "|head;(tailrack_backup_timestamp_seconds|" in job.pop("metric_relabel_configs")[0]["regex"]
    assert 'instance="head", node=~"[a-z]' in host.path(RULES).read_text()
    assert job == {
        "job_name": "node",
        "honor_labels": False,
        "honor_timestamps": False,
        "follow_redirects": False,
        "body_size_limit": "4MB",
        "sample_limit": 20000,
        "label_limit": 16,
        "label_name_length_limit": 64,
        "label_value_length_limit": 128,
        "file_sd_configs": [{"files": [f"{TARGETS}/*.json"]}],
        "relabel_configs": [
            {"source_labels": ["__address__"], "target_label": "__address__", "replacement": "$1:9100"}
        ],
    }
    assert "@" not in config + host.path(RULES).read_text()
    assert host.path("/etc/tailrack/monitoring.json").stat().st_mode & 0o777 == 0o600
    assert not [call for call in services(host) if "restart" in call or "reload" in call]


def test_a_run_that_was_cut_off_after_it_wrote_a_file_is_made_up_for_by_the_next(host: Shell) -> None:
    services(host)
    host.write("/etc/tailrack/prometheus/environment", "ADDRESS=100.64.0.1\nPORT=9090\nDAYS=7\nGIB=5\n")
    host.write(RULES, "groups: []\n")
    again = services(host, monitoring_retention_days=7, monitoring_rules="groups: []")
    assert [call for call in again if "prometheus.service" in call] == [
        "systemctl restart tailrack-prometheus.service",
        "systemctl reload tailrack-prometheus.service",
    ]


def failure(host: Shell) -> str:
    """What the head node's phase fails with."""
    done = host.step(script_of("monitoring", "services"), {**header(), **HEAD})
    assert done.returncode == 1
    return done.stderr


def test_the_error_has_the_fault_of_a_daemon_or_a_full_disk(host: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    host.hurry()
    monkeypatch.setattr(daemons, "answers", lambda daemon: False)
    trace = "goroutine 1 [running]:\nmain.main()\n\tmain.go:613 +0x6a93"
    storage = 'ts=1 level=error err="opening storage failed: corrupted block 01ABC"'
    for wrong in (storage, "panic: no room", "fatal error: fault"):
        host.stub("journalctl", f"cat <<'END'\nlevel=warn begins\n{wrong}\n{trace}\nEND")
        assert f"9100: {wrong}\n" in failure(host)
    for folder in ("/var/lib/tailrack-node-exporter", "/var/lib/private/tailrack-node-exporter"):
        host.path(folder).mkdir(parents=True)
        free = {folder: 3 * 2**20}
        monkeypatch.setattr(daemons, "free_bytes", lambda path, free=free: free.get(path, 2**40))
        assert f": {folder} is on a full disk; fatal error: fault" in failure(host)
        host.path(folder).rmdir()


def test_daemons_that_came_with_the_cluster_do_not_start_by_themselves_and_others_are_left_alone(host: Shell) -> None:
    host.write("/var/lib/tailrack/packages", "prometheus\n")
    first = services(host)
    assert "systemctl disable -q --now prometheus.service" in first
    assert "systemctl disable -q --now prometheus-node-exporter.service" not in first
    assert "systemctl disable -q --now prometheus.service" not in services(host)


@pytest.mark.parametrize("at", ["100.64.0.1:9100", "0.0.0.0:9100", "*:9100", "[::]:9100"])
def test_a_port_that_another_program_has_is_named_with_it_before_anything_is_started(host: Shell, at: str) -> None:
    host.stub("ss", f"""echo 'LISTEN 0 4096 {at} *:* users:(("node_exporter",pid=7,fd=3))'""")
    problem = failure(host)
    assert "port 9100 is in use on a1 (node_exporter)" in problem
    assert "tailrack:monitoring.exporter_port" in problem
    assert not any("start tailrack-node-exporter" in call for call in host.calls)


def test_a_member_is_a_target_until_it_leaves(host: Shell) -> None:
    step(host, "monitoring", "register", A1)
    target = host.path(f"{TARGETS}/a1.json")
    assert json.loads(target.read_text())[0]["targets"] == ["100.64.0.3"]
    step(host, "monitoring", "register", A1, "down")
    assert not target.exists()
    step(host, "monitoring", "register", A1)
    host.call(forget, Step("head", "expire"), "a1")
    assert not target.exists()


def test_a_node_has_an_exporter_only_while_monitoring_is_on(host: Shell) -> None:
    assert_ok(host.step(compose([Role("exporters")], ["node_services"]), {**header(), **A1}))
    assert host.path("/etc/tailrack/node-exporter").read_text() == "ADDRESS=100.64.0.3\nPORT=9100\n"
    on = roles(parse({**LAB, "monitoring": {}}, base_dir=Path()))
    assert_ok(host.step(compose([role for role in on if role.name == "monitoring"], ["node"]), {}))
    assert [path for path in TRACES if host.path(path).exists()] == [*TRACES]
    assert_ok(host.step(script_of("monitoring", "node", used=False), {}))
    assert [path for path in TRACES if host.path(path).exists()] == []
