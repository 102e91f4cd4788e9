"""Role grafana: what its section refuses, whose its password is, what is on the head node before, with and after it."""

import configparser
import hashlib
import io
import json
import tarfile
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from components.node import daemons
from components.roles.order import roles
from components.roles.role import Value
from components.steps.composition import compose
from stacks.config import parse
from tests.dashboards import dashboards
from tests.unit.configs import LAB, RawConfig, refusal
from tests.unit.recorded import Build
from tests.unit.shell import Shell, assert_fails, stub_daemons

ASKED: RawConfig = {"source": "https://dl.grafana.example/grafana.tar.gz", "sha256": "0" * 64}
UNIT = "/etc/systemd/system/tailrack-grafana.service"
PROGRAMS, FOLDER = "/usr/local/lib/tailrack/grafana", "/etc/tailrack/grafana"


def asked(**grafana: object) -> RawConfig:
    return {**LAB, "monitoring": {"grafana": {**ASKED, **grafana}}}


def test_the_config_rejects_invalid_grafana_settings() -> None:
    for grafana, words in (
        ({}, "monitoring.grafana.source: missing"),
        ({"source": ASKED["source"]}, "monitoring.grafana.sha256: missing"),
        ({**ASKED, "source": "grafana.deb"}, "monitoring.grafana.source: 'grafana.deb' is not an address or a path"),
        ({**ASKED, "source": "/srv/$(id).tar.gz"}, "monitoring.grafana.source: '/srv/$(id).tar.gz' is not"),
        ({**ASKED, "sha256": "abc"}, "monitoring.grafana.sha256: 'abc' is not 64 lowercase digits"),
        ({**ASKED, "port": 9090}, "monitoring.grafana.port: 9090 is also the port of Prometheus"),
        ({**ASKED, "port": 9100}, "monitoring.grafana.port: 9100 is also the port of the node exporter"),
        ({**ASKED, "port": 6817}, "monitoring.grafana.port: 6817 is a port of another daemon"),
        ({**ASKED, "version": "12"}, "monitoring.grafana.version"),
    ):
        assert words in refusal({"monitoring": {"grafana": grafana}}), grafana


def test_the_stack_makes_its_password_and_gives_it_out_as_a_secret(build: Build) -> None:
    stack = build(asked(), answers={"grafana-password": "made-and-nobody-may-see"})
    assert stack.header("head-services")["grafana_password"] == "made-and-nobody-may-see"
    assert not [one.name for one in stack.resources if "made-and-nobody-may-see" in one.in_plain_state]
    assert "grafana-password" not in build({**LAB, "monitoring": {}}).names


def archive(program: str = "#!/bin/sh\necho grafana version 12\n") -> bytes:
    """An archive in the form of Grafana's own. What is in it is a stand-in, and no Grafana."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as files:
        for name, text, mode in (("bin/grafana", program, 0o777), ("conf/defaults.ini", "", 0o666)):
            entry = tarfile.TarInfo(f"grafana-12.3.0/{name}")
            entry.size, entry.mode, entry.uid = len(text), mode, 6001
            files.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()


ROLE = next(role for role in roles(parse(asked(), base_dir=Path())) if role.name == "grafana")


@pytest.fixture
def host(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A head node on which units are active once they were started, and whose daemons answer."""
    monkeypatch.setattr(daemons, "answers", lambda daemon: True)
    shell.stub("tar", 'PATH=/usr/bin:/bin exec tar "$@"')
    return stub_daemons(shell, "sync")


def bring(shell: Shell, content: bytes) -> dict[str, Value]:
    """Lay an archive onto the machine; return what the role gives its scripts for it."""
    path = shell.path("/srv/grafana.tar.gz")
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    made = roles(parse(asked(source=str(path), sha256=hashlib.sha256(content).hexdigest()), base_dir=Path()))
    return next({**role.values, **role.texts} for role in made if role.name == "grafana")


def services(shell: Shell, values: dict[str, Value]) -> CompletedProcess[str]:
    """Run the head node's phase."""
    given: dict[str, Value] = {"head_address": "100.64.0.1", "grafana_password": "of-the-stack"}
    return shell.step(compose([ROLE], ["services"]), {**given, **values})


def starts(shell: Shell) -> int:
    return shell.calls.count("systemctl restart tailrack-grafana.service")


def test_grafana_shows_prometheus_and_a_second_run_restarts_nothing(host: Shell) -> None:
    values = bring(host, archive())
    assert (done := services(host, values)).returncode == 0, done.stderr
    home = f"{PROGRAMS}/{values['grafana_sha256']}"
    assert host.path(f"{home}/bin/grafana").stat().st_mode & 0o777 == 0o755
    assert host.path(f"{home}/conf/defaults.ini").stat().st_mode & 0o777 == 0o644
    assert f"ExecStart={home}/bin/grafana server" in host.path(UNIT).read_text()
    config = configparser.RawConfigParser()
    config.read(host.path(f"{FOLDER}/grafana.ini"))
    assert (config["server"]["http_addr"], config["server"]["http_port"]) == ("100.64.0.1", "3000")
    assert not config["auth.anonymous"].getboolean("enabled")
    (source,) = yaml.safe_load(host.path(f"{FOLDER}/provisioning/datasources/tailrack.yml").read_text())["datasources"]
    assert source["url"] == "http://100.64.0.1:9090"
    assert {
        path.stem: json.loads(path.read_text()) for path in host.path(f"{FOLDER}/dashboards").iterdir()
    } == dashboards()
    for word in ("password", "key"):
        assert host.path(f"{FOLDER}/{word}").stat().st_mode & 0o777 == 0o600
    everything = [path for folder in ("/etc", "/usr/local") for path in host.path(folder).rglob("*") if path.is_file()]
    assert [path.name for path in everything if b"of-the-stack" in path.read_bytes()] == ["password"]
    assert not [call for call in host.calls if "of-the-stack" in call]
    key = host.path(f"{FOLDER}/key").read_text()
    assert services(host, values).returncode == 0
    assert (starts(host), host.path(f"{FOLDER}/key").read_text()) == (1, key)


def test_another_release_replaces_the_one_before_and_the_rest_of_a_cut_off_run(host: Shell) -> None:
    services(host, bring(host, archive()))
    host.write(f"{PROGRAMS}/.new/home/bin/half", "")
    values = bring(host, archive("#!/bin/sh\n"))
    assert services(host, values).returncode == 0
    assert [path.name for path in host.path(PROGRAMS).iterdir()] == [values["grafana_sha256"]]
    assert starts(host) == 2


def test_the_step_rejects_an_unusable_archive_and_keeps_no_files(host: Shell) -> None:
    for content, words in (
        (b"no archive", ("grafana.tar.gz: tar: ",)),
        (archive("#!/bin/sh\necho wrong machine >&2; exit 126\n"), ("does not run here",)),
        (archive("\x7fELF of another machine"), ("does not run here", "Exec format error")),
    ):
        assert_fails(services(host, bring(host, content)), *words, "tailrack:monitoring.grafana.source")
        assert not [*host.path(PROGRAMS).iterdir()], words
    assert starts(host) == 0
