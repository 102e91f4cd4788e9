"""Role monitoring: units and files on the head node and on nodes, a target a member, and nothing of it afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from components.roles.order import roles
from components.roles.role import Value
from stacks.config import parse
from tests.unit.configs import LAB
from tests.unit.shell import Shell

PROMETHEUS = "/etc/systemd/system/tailrack-prometheus.service"
EXPORTER = "/etc/systemd/system/tailrack-node-exporter.service"
CONFIG, RULES = "/etc/tailrack/prometheus/prometheus.yml", "/etc/tailrack/prometheus/rules.yml"
TARGETS = "/var/lib/tailrack/monitoring/targets"
A1: dict[str, Value] = {"NODE_NAME": "a1", "NODE_SITE": "rack", "NODE_ADDRESS": "100.64.0.3"}
HEAD: dict[str, Value] = {"NODE_NAME": "head", "NODE_SITE": "rack", "HEAD_ADDRESS": "100.64.0.1"}


def header(**section: int) -> dict[str, Value]:
    """What the role gives its scripts where the config asks for it."""
    made = roles(parse({**LAB, "monitoring": section}, base_dir=Path()))
    return next({**role.values, **role.texts} for role in made if role.name == "monitoring")


@pytest.fixture
def host(shell: Shell) -> Shell:
    """A machine on which units are active once they were started, whose daemons answer, and whose ports are free."""
    root = shell.root
    shell.path("/run/tailrack-private").mkdir(parents=True)
    shell.stub(
        "systemctl",
        f"""case $1 in
            is-enabled) echo enabled ;;
            show) case $* in *MainPID*) echo 77 ;; esac ;;
            -q) case $2 in is-active) [ -e "{root}/active-$3" ] ;; esac ;;
            start | restart) [ "$2" = --no-block ] || touch "{root}/active-$2" ;;
        esac""",
    )
    for name in ("curl", "ss", "promtool", "journalctl"):
        shell.stub(name)
    return shell


def services(shell: Shell, **more: Value) -> list[str]:
    """Run the head node's phase; what systemd was told to begin and end in it."""
    before = len(shell.calls)
    done = shell.call("monitoring_services", {**header(), **HEAD, **more}, "monitoring/services")
    assert done.returncode == 0, done.stderr
    words = ("systemctl st", "systemctl re", "systemctl disable")
    others = ("reset-failed", "tailrack-firewall")
    return [
        call for call in shell.calls[before:] if call.startswith(words) and not any(each in call for each in others)
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
        "file_sd_configs": [{"files": [f"{host.root}{TARGETS}/*.json"]}],
        "relabel_configs": [
            {"source_labels": ["__address__"], "target_label": "__address__", "replacement": "$1:9100"}
        ],
    }
    assert "@" not in config + host.path(RULES).read_text()
    assert host.path("/etc/tailrack/monitoring.json").stat().st_mode & 0o777 == 0o600
    assert not [call for call in services(host) if "restart" in call or "reload" in call]


def test_other_rules_are_read_anew_without_an_end_of_what_collects_and_another_port_with_one(host: Shell) -> None:
    services(host)
    assert "systemctl reload tailrack-prometheus.service" in services(host, MONITORING_RULES="groups: []")
    services(host)
    again = services(host, MONITORING_PORT=9999)
    assert "systemctl restart tailrack-prometheus.service" in again
    assert "systemctl restart tailrack-node-exporter.service" not in again


def test_a_run_that_was_cut_off_after_it_wrote_a_file_is_made_up_for_by_the_next(host: Shell) -> None:
    services(host)
    host.write("/etc/tailrack/prometheus/environment", "ADDRESS=100.64.0.1\nPORT=9090\nDAYS=7\nGIB=5\n")
    host.write(RULES, "groups: []\n")
    again = services(host, MONITORING_RETENTION_DAYS=7, MONITORING_RULES="groups: []")
    assert [call for call in again if "prometheus.service" in call] == [
        "systemctl restart tailrack-prometheus.service",
        "systemctl reload tailrack-prometheus.service",
    ]


def test_one_that_is_up_and_does_not_answer_is_started_anew(host: Shell) -> None:
    services(host)
    host.stub("curl", f'[ -e "{host.root}/again" ] || {{ touch "{host.root}/again"; exit 7; }}')
    assert "systemctl restart tailrack-node-exporter.service" in services(host)


def refused(host: Shell) -> str:
    """What the head node's phase fails with where no daemon answers."""
    host.hurry()
    host.stub("curl", "exit 7")
    done = host.call(
        "dispatch() { :; }; report() { printf '%s' \"$REASON\"; }; trap report EXIT; monitoring_services",
        {**header(), **HEAD},
        "base",
        "monitoring/services",
    )
    assert done.returncode != 0
    return done.stdout


def test_one_that_does_not_answer_is_told_with_its_own_last_words(host: Shell) -> None:
    # Of the unit, systemd's words would be the last.
    own = "_SYSTEMD_UNIT=tailrack-node-exporter.service"
    host.stub("journalctl", f'if [ "$1" = {own} ]; then echo no such flag; else echo exit-code; fi')
    assert "tailrack-node-exporter does not answer at 100.64.0.1:9100: no such flag" in refused(host)


@pytest.mark.parametrize(
    "wrong",
    ['ts=1 level=error err="opening storage failed: corrupted block 01ABC"', "fatal error: fault", "panic: no room"],
)
def test_of_what_it_said_last_what_is_wrong_is_told_and_no_address_in_memory(host: Shell, wrong: str) -> None:
    trace = "goroutine 1 [running]:\nmain.main()\n\tmain.go:613 +0x6a93"
    host.stub("journalctl", f"cat <<'END'\nlevel=warn begins\n{wrong}\n{trace}\nEND")
    said = refused(host)
    assert said.endswith(f"9100: {wrong}")


@pytest.mark.parametrize("place", ["/var/lib/private", "/var/lib"])
def test_a_full_disk_is_told_where_the_daemon_does_not(host: Shell, place: str) -> None:
    host.path(f"{place}/tailrack-node-exporter").mkdir(parents=True)
    host.stub("df", f"[ \"$3\" = {host.root}{place}/tailrack-node-exporter ] && printf 'Avail\n    3\n'")
    host.stub("journalctl", "echo 'fatal error: fault'")
    said = f": {place}/tailrack-node-exporter is on a full disk; fatal error: fault"
    assert said in refused(host).replace(str(host.root), "")


def test_daemons_that_came_with_the_cluster_do_not_start_by_themselves_and_others_are_left_alone(host: Shell) -> None:
    host.write("/var/lib/tailrack/packages", "prometheus\n")
    first = services(host)
    assert "systemctl disable -q --now prometheus.service" in first
    assert "systemctl disable -q --now prometheus-node-exporter.service" not in first
    assert "systemctl disable -q --now prometheus.service" not in services(host)


@pytest.mark.parametrize("at", ["100.64.0.1:9100", "0.0.0.0:9100", "*:9100", "[::]:9100"])
def test_a_port_that_another_program_has_is_named_with_it_before_anything_is_started(host: Shell, at: str) -> None:
    host.stub("ss", f"""echo 'LISTEN 0 4096 {at} *:* users:(("node_exporter",pid=7,fd=3))'""")
    done = host.call(
        'dispatch() { :; }; report() { printf \'%s; %s\' "$REASON" "$REMEDY"; }; trap report EXIT; monitoring_services',
        {**header(), **HEAD},
        "base",
        "monitoring/services",
    )
    assert done.returncode != 0
    assert "port 9100 is in use on a1 (node_exporter)" in done.stdout
    assert "tailrack:monitoring.exporter_port" in done.stdout
    assert not any("start tailrack-node-exporter" in call for call in host.calls)


def test_its_own_port_is_in_nobodys_way(host: Shell) -> None:
    services(host)
    host.stub("ss", """echo 'LISTEN 0 4096 100.64.0.1:9090 *:* users:(("prometheus",pid=77,fd=3))'""")
    assert "systemctl restart tailrack-prometheus.service" in services(host, MONITORING_RETENTION_DAYS=7)


def test_a_program_at_another_address_of_that_port_is_in_nobodys_way(host: Shell) -> None:
    host.stub("ss", """echo 'LISTEN 0 4096 127.0.0.1:9100 *:* users:(("node_exporter",pid=7,fd=3))'""")
    assert "systemctl restart tailrack-node-exporter.service" in services(host)


def test_a_member_is_a_target_until_it_leaves(host: Shell) -> None:
    assert host.call("monitoring_register", {**header(), **A1}, "monitoring/register").returncode == 0
    target = host.path(f"{TARGETS}/a1.json")
    assert json.loads(target.read_text())[0]["targets"] == ["100.64.0.3"]
    host.call("monitoring_register_forget", {**header(), **A1}, "monitoring/register")
    assert not target.exists()


def test_a_node_has_its_exporter_and_figures_and_loses_them_where_nobody_asks_any_more(host: Shell) -> None:
    done = host.call("exporters_node_services", {**header(), **A1}, "exporters/node_services")
    assert done.returncode == 0, done.stderr
    assert host.path("/etc/tailrack/node-exporter").read_text() == "ADDRESS=100.64.0.3\nPORT=9100\n"
    assert host.path("/etc/tailrack/figures").read_text() == "COLLECTORS=tailnet gpus certificate\n"
    host.call("monitoring_node", {**header(), **A1}, "monitoring/node")
    assert host.path(EXPORTER).exists()
    host.call("monitoring_node", {**header(), **A1, "MONITORING_ENABLED": False}, "monitoring/node")
    for path in (EXPORTER, "/etc/tailrack/node-exporter", "/etc/tailrack/figures", "/var/lib/tailrack/metrics"):
        assert not host.path(path).exists(), path


def test_switched_off_what_was_collected_stays_and_where_the_cluster_leaves_it_goes(host: Shell) -> None:
    services(host)
    host.write("/var/lib/private/tailrack-prometheus/wal", "figures")
    ended = services(host, MONITORING_ENABLED=False)
    assert "systemctl disable -q --now tailrack-prometheus.service" in ended
    for path in (PROMETHEUS, EXPORTER, CONFIG, RULES, "/etc/tailrack/monitoring.json"):
        assert not host.path(path).exists(), path
    assert host.path("/var/lib/private/tailrack-prometheus/wal").exists()
    assert host.call("monitoring_leave", {}, "monitoring/leave").returncode == 0
    assert not host.path("/var/lib/private/tailrack-prometheus").exists()
