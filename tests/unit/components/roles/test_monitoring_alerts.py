"""Who is told of alerts and how, what of that is secret, and the figures behind two of them."""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.node import daemons
from components.roles.commands.tailrack.costs import Cost
from components.roles.monitoring.monitoring import figures
from components.roles.monitoring.monitoring.slurm_figures import cost_figures, exposition
from components.roles.order import roles
from components.roles.role import Role
from stacks.config import parse
from stacks.config.model import StackConfig
from tests.unit.configs import LAB, refusal
from tests.unit.recorded import record_cluster
from tests.unit.shell import Shell, assert_fails, assert_ok, script_of, stub_daemons

TOKEN, PASSWORD = "hook-token-nobody-may-see", "mail password  nobody may see"
HOOK = {"kind": "webhook", "url": f"https://hooks.example:8443/{TOKEN}?a=b"}
SLACK = {"kind": "slack", "url": f"https://hooks.slack.com/services/{TOKEN}"}
RELAY = {"kind": "mail", "to": "ops@example.org", "sender": "lab@example.org", "smarthost": "smtp.example.org:25"}
MAIL = {**RELAY, "user": "lab@example.org", "password": PASSWORD}
DIR = "/etc/tailrack/alertmanager"
UNIT = "/etc/systemd/system/tailrack-alertmanager.service"


def config(*receivers: Mapping[str, object]) -> StackConfig:
    sections = {**LAB, "monitoring": {"receivers": list(receivers)}}
    return parse(sections, base_dir=Path(), secret_keys=frozenset({"monitoring"}))


def monitoring(*receivers: Mapping[str, object]) -> Role:
    return next(role for role in roles(config(*receivers)) if role.name == "monitoring")


def told(*receivers: Mapping[str, object]) -> Any:
    """Alertmanager's one receiver."""
    return yaml.safe_load(str(monitoring(*receivers).values["monitoring_alertmanager"]))["receivers"][0]


def test_each_kind_of_receiver_reads_its_secret_from_a_separate_file() -> None:
    found = told(HOOK, MAIL, SLACK, RELAY)
    folder = "/run/credentials/tailrack-alertmanager.service"
    assert found["webhook_configs"] == [{"send_resolved": True, "url_file": f"{folder}/receiver-0"}]
    assert found["slack_configs"][0]["api_url_file"] == f"{folder}/receiver-2"
    assert "remedy" in found["slack_configs"][0]["text"]
    # Slack's own default would show the values of all labels.
    assert "alertname" in found["slack_configs"][0]["fallback"]
    mail, relay = found["email_configs"]
    assert (mail["auth_username"], mail["auth_password_file"]) == ("lab@example.org", f"{folder}/receiver-1")
    assert (mail["to"], mail["from"], mail["smarthost"]) == (
        "ops@example.org",
        "lab@example.org",
        "smtp.example.org:25",
    )
    assert mail["require_tls"] is True
    assert not [key for key in relay if key.startswith("auth")]
    assert monitoring(HOOK, MAIL, SLACK, RELAY).secrets == {
        "monitoring_receivers": f"receiver-0 {HOOK['url']}\nreceiver-1 {PASSWORD}\nreceiver-2 {SLACK['url']}"
    }


def test_only_the_services_step_contains_secrets_and_the_state_hides_them() -> None:
    stack = record_cluster(config(HOOK, MAIL))
    for word in (TOKEN, PASSWORD):
        assert [step.name for step in stack.remote if word in step.inputs["stdin"]] == ["head-services"]
        assert [resource.name for resource in stack.resources if word in resource.in_plain_state] == []
        assert word not in json.dumps(stack.outputs)
    assert "stdin" in stack["head-services"].secret_paths


BAD: list[tuple[Mapping[str, object], str, str]] = [
    ({"kind": "pager"}, "[0].kind", "'pager' is not a valid kind; write one of: mail, slack, webhook"),
    ({"url": "https://x.example"}, "[0].kind", "missing"),
    ({"kind": "webhook"}, "[0].url", "missing; run: pulumi config set"),
    ({"kind": "slack"}, "[0].url", "run: pulumi config set --path --secret 'tailrack:monitoring.receivers[0].url'"),
    ({"kind": "webhook", "url": "ftp://x.example"}, "[0].url", "[secret] is not an http:// or https:// address"),
    ({"kind": "webhook", "url": "https://x.example/a b"}, "[0].url", "of plain characters"),
    ({"kind": "webhook", "url": "https://x.example/a\nreceiver-1 b"}, "[0].url", "of plain characters"),
    (
        {"kind": "webhook", "url": "https://x.example:99999/"},
        "[0].url",
        "with a port from 1 to 65535 or none, such as https:",
    ),
    ({"kind": "slack", "url": "http://hooks.slack.com/x"}, "[0].url", "[secret] is not an https:// address"),
    ({**HOOK, "to": "ops@example.org"}, "[0].to", "is not a key of kind webhook; it would have no effect; remove it"),
    ({**MAIL, "url": "https://x.example"}, "[0].url", "write kind: webhook or slack"),
    ({"kind": "mail"}, "[0].smarthost", "missing; write mail.example.org:587"),
    ({**RELAY, "to": "ops"}, "[0].to", "'ops' is not a mail address"),
    ({**RELAY, "to": "{{ .x }}@example.org"}, "[0].to", "is not a mail address"),
    ({**RELAY, "sender": "a@example.org\nBcc: b@example.org"}, "[0].sender", "is not a mail address"),
    ({**RELAY, "smarthost": "smtp.example.org"}, "[0].smarthost", "is not HOST:PORT"),
    ({**RELAY, "smarthost": "smtp.example.org:0"}, "[0].smarthost", "is not HOST:PORT"),
    ({**RELAY, "user": "lab"}, "[0].user", "is set without password"),
    ({**MAIL, "password": "a\nb"}, "[0].password", "[secret] is empty or too long, or has line breaks"),
    ({**MAIL, "password": ""}, "[0].password", "[secret] is empty"),
    ({**MAIL, "encrypted": False}, "[0].encrypted", "anyone between the two machines could read the password"),
    ({**MAIL, "from": "lab@example.org"}, "[0].from", "unknown key"),
]


def test_an_unreachable_receiver_is_refused_by_its_key() -> None:
    for bad, path, said in BAD:
        text = refusal({"monitoring": {"receivers": [bad]}})
        assert re.search(rf"tailrack:monitoring\.receivers{re.escape(path)}: .*{re.escape(said)}", text), text
        assert TOKEN not in text
        assert PASSWORD not in text


# On the head node.


@pytest.fixture
def host(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A machine on which units are active once they were started, and whose daemons answer."""
    monkeypatch.setattr(daemons, "answers", lambda daemon: True)
    shell.stub("perl", 'exec /usr/bin/perl "$@"')
    return stub_daemons(shell, "promtool", "amtool")


def services(shell: Shell, *receivers: Mapping[str, object]) -> list[str]:
    """Run the head node's phase; which units it restarted."""
    before, role = len(shell.calls), monitoring(*receivers)
    head = {"node_name": "head", "node_site": "rack", "head_address": "100.64.0.1"}
    done = assert_ok(shell.step(script_of("monitoring", "services"), {**role.values, **role.secrets, **head}))
    log = shell.path("/var/log/tailrack/a1-step.log").read_text()
    for word in (TOKEN, PASSWORD):
        assert word not in done.stdout + log + "\n".join(shell.calls)
    return [call.split()[-1] for call in shell.calls[before:] if call.startswith("systemctl restart")]


def test_prometheus_tells_alertmanager_with_a_password_and_a_second_run_restarts_nothing(host: Shell) -> None:
    assert "tailrack-alertmanager.service" in services(host, HOOK, MAIL)
    for name, text in (("receiver-0", HOOK["url"]), ("receiver-1", PASSWORD)):
        file = host.path(f"{DIR}/{name}")
        assert file.read_text() == f"{text}\n"
        assert file.stat().st_mode & 0o777 == 0o600
    assert host.path(DIR).stat().st_mode & 0o777 == 0o700
    unit = host.path(UNIT).read_text()
    assert "@" not in unit
    for name in ("receiver-0", "receiver-1", "web.yml", "alertmanager.yml"):
        assert f"LoadCredential={name}:{DIR}/{name}\n" in unit.replace(str(host.root), "")
    config = yaml.safe_load(host.path("/etc/tailrack/prometheus/prometheus.yml").read_text())
    assert config["global"]["external_labels"] == {"cluster": "lab"}
    (asked,) = config["alerting"]["alertmanagers"]
    assert asked["static_configs"] == [{"targets": ["127.0.0.1:9093"]}]
    assert asked["basic_auth"]["password_file"].endswith("/run/credentials/tailrack-prometheus.service/alertmanager")
    assert config["scrape_configs"][-1]["job_name"] == "alertmanager"
    password = host.path(f"{DIR}/password").read_text().strip()
    assert len(password) == 64
    assert password not in host.path(f"{DIR}/web.yml").read_text()
    assert services(host, HOOK, MAIL) == []


def test_each_change_restarts_the_daemons_that_it_concerns(host: Shell) -> None:
    services(host, HOOK, MAIL)
    assert services(host, {**HOOK, "url": "https://other.example/"}, MAIL) == ["tailrack-alertmanager.service"]
    assert services(host, HOOK) == ["tailrack-alertmanager.service"]
    assert not host.path(f"{DIR}/receiver-1").exists()
    host.write(f"{DIR}/password", "half")
    assert services(host, HOOK) == ["tailrack-prometheus.service", "tailrack-alertmanager.service"]
    assert services(host, HOOK) == []
    # Without receivers there is no Alertmanager.
    assert services(host) == ["tailrack-prometheus.service"]
    assert not host.path(DIR).exists()
    assert not host.path(UNIT).exists()
    assert "alert" not in host.path("/etc/tailrack/prometheus/prometheus.yml").read_text()
    assert "LoadCredential=alertmanager" not in host.path("/etc/systemd/system/tailrack-prometheus.service").read_text()


def test_an_old_alertmanager_gets_an_error_and_prometheus_continues(host: Shell) -> None:
    said = "Checking 'x'  FAILED: yaml: unmarshal errors:\n  line 32: field url_file not found in type config.plain"
    host.stub("amtool", f'echo "{said}"; exit 1')
    role = monitoring(HOOK)
    head = {"node_name": "head", "node_site": "r", "head_address": "100.64.0.1"}
    assert_fails(
        host.step(script_of("monitoring", "services"), {**role.values, **role.secrets, **head}),
        "field url_file not found",
        "Alertmanager 0.26 or newer",
    )
    assert "systemctl restart tailrack-prometheus.service" in host.calls


# Figures.


def test_monitoring_reads_the_expiry_of_a_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ca", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    sign = ["ssh-keygen", "-q", "-s", str(tmp_path / "ca"), "-h", "-I", "a1", "-n", "a1,100.64.0.3", "-z", "7"]
    subprocess.run([*sign, "-V", "20260101000000Z:20260401000000Z", str(tmp_path / "key.pub")], check=True)
    file = tmp_path / "key-cert.pub"
    monkeypatch.setattr(figures, "CERTIFICATE", file)
    # 2026-04-01 00:00:00 UTC, on a machine in any time zone.
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert (
        exposition(figures.certificate()).splitlines()[-1] == "tailrack_certificate_end_timestamp_seconds 1775001600.0"
    )
    subprocess.run([*sign, str(tmp_path / "key.pub")], check=True)
    assert figures.certificate()[0].samples == []
    file.write_text("ssh-ed25519 AAAA")
    with pytest.raises(ValueError, match=r"certificate|invalid key"):
        figures.certificate()
    file.unlink()
    assert figures.certificate() == ()


def cost(name: str, idle: int | None, *, there: bool = True) -> Cost:
    return Cost(name, 2.5, "EUR", there, idle is None, idle, 10.0, 4.0, None)


def test_nodes_with_a_price_are_figures_and_the_head_node_is_never_idle() -> None:
    found = cost_figures(
        [cost("head", 900), cost("a1", 7200), cost("a2", None), cost("a3", None, there=False)], "head", 2
    )
    assert [metric.samples for metric in found] == [
        [({"node": name, "currency": "EUR"}, 2.5) for name in ("head", "a1", "a2")],
        [({"node": name, "currency": "EUR"}, 10.0) for name in ("head", "a1", "a2", "a3")],
        [({"node": "a1"}, 7200), ({"node": "a2"}, 0)],
        [({}, 7200)],
    ]
    assert exposition(cost_figures([], "head", 2)) == ""
