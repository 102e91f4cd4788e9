"""A site whose hosts are the output of another stack: of the same project by either engine, of any with the CLI."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.commands import main
from cli.pulumi.find_engine import find_engine
from cli.run_events import Event
from tests.engine.conftest import PASSPHRASE, Deploy, needs_cli
from tests.engine.played_hosts import PROJECT, Played, play, write_config
from tests.engine.stack_under_test import Stack
from tests.engine.test_preview import Trial

# The stack `vms` exports hosts; `dev` runs one step for each.
PROGRAM = f"""
import pathlib
import sys
sys.path.insert(0, {str(PROJECT)!r})
from stacks.read_outputs import read_other_stacks
from stacks.sites.hosts.other_stacks import hosts_of, with_outputs
from components.settings.problems import Report

async def main():
    if pulumi.get_stack() == "vms":
        hosts = [dict(name=name, address="192.0.2.1", port=2222) for name in %r]
        pulumi.export("hosts", hosts)
        pulumi.export("secret", [dict(hosts[0], key=pulumi.Output.secret("hush-hush"))])
        return
    stacks = await read_other_stacks(["vms"])
    report = Report(frozenset())
    machines = hosts_of(with_outputs(dict(stack="vms"), stacks.__getitem__), "hosts_from", pathlib.Path(), report)
    assert not report.problems
    for host, place in machines:
        step(host["name"], "echo %%r at %%s" %% (host["port"], place))
    hosts_of(with_outputs(dict(stack="vms", output="secret"), stacks.__getitem__), "hosts_from", pathlib.Path(), report)
    pulumi.export("refused", str(next(iter(report.problems))))

pulumi.run(main)
"""


def test_each_host_of_another_stack_is_plain_and_comes_and_goes_with_it(deploy: Deploy, stack: Stack) -> None:
    stack.write(PROGRAM % ["n1"], {"any": "text"})
    (stack.folder / "Pulumi.vms.yaml").write_text("config: {}\n")
    assert deploy("vms", []).up().ok
    dev = deploy("dev", [])
    summary = dev.up()
    assert summary.ok, summary.failures
    assert [each.stdin for each in stack.host.take()] == ["echo 2222 at hosts_from.output[0]"]
    assert "'secret' is a secret of stack 'vms'" in dev.outputs()["refused"]
    assert "hush" not in dev.outputs()["refused"]
    command = dev.other_stack("vms")
    assert command.outputs["hosts"][0]["name"] == "n1"
    assert sorted(command.secrets) == ["secret"]
    assert deploy("dev", []).other_stack("nope").error

    stack.write(PROGRAM % ["n2"], {"any": "text"})
    assert deploy("vms", []).up().ok
    events: list[Event] = []
    again = deploy("dev", events).preview()
    assert (again.counts["create"], again.counts["delete"]) == (1, 1)


RENTED = """
import json, pathlib, pulumi
pulumi.export("hosts", json.loads(pathlib.Path("hosts.json").read_text()))
"""


class Rented:
    """A program of another project in the same backend that rents machines."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        runtime = {"name": "python", "options": {"virtualenv": sys.prefix}}
        (folder / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "vms", "runtime": runtime}))
        (folder / "__main__.py").write_text(RENTED)
        self._pulumi("stack", "init", "prod")

    def up(self, *hosts: dict[str, Any]) -> None:
        """Rent these."""
        (self._folder / "hosts.json").write_text(json.dumps(hosts))
        self._pulumi("up", "--yes", "--skip-preview", "--stack", "prod")

    def destroy(self) -> None:
        """Return them."""
        self._pulumi("destroy", "--yes", "--skip-preview", "--stack", "prod")

    def _pulumi(self, *words: str) -> None:
        command = ["pulumi", *words, "--non-interactive"]
        subprocess.run(command, cwd=self._folder, env={**os.environ}, capture_output=True, check=True)


@pytest.fixture
def played() -> Iterator[Played]:
    with play(4) as hosts:
        yield hosts


@needs_cli
def test_machines_of_another_projects_stack_join_and_leave_the_cluster_and_every_command_names_them(
    played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "backend").mkdir()
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/backend")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", PASSPHRASE)
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE_FILE", raising=False)
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    addresses = [("127.0.0.1", port) for port in played.ports[:3]]
    config = write_config(tmp_path, addresses, played.private_key, played.host_key)
    trial = Trial(tmp_path, config, find_engine("cli"), played)
    first, second = (
        {"name": f"gpu{number}", "address": "127.0.0.1", "port": port, "host_key": played.host_key}
        for number, port in enumerate(played.ports[2:])
    )

    def rent(sections: dict[str, Any]) -> None:
        del sections["tailrack:sites"][2]["hosts_file"]
        sections["tailrack:sites"][2]["hosts_from"] = {"stack": "organization/vms/prod"}
        sections["tailrack:sites"][2]["known_hosts_file"] = str(tmp_path / "known")

    trial.edit(rent)
    refused = trial.deployment().preview().failures
    assert "tailrack:sites[2].hosts_from.stack: 'organization/vms/prod' cannot be read: " in refused[0].message

    rented = Rented(tmp_path / "vms")
    rented.up(first)
    trial.up()
    deployment = trial.deployment()
    assert [node["name"] for node in deployment.outputs()["cluster"]["nodes"]] == ["alpha0", "beta0", "gpu0"]
    assert [node.name for node in deployment.config().nodes()] == ["alpha0", "beta0", "gpu0"]
    assert (deployment.written.host("gpu0") or {})["private_key_file"] == str(tmp_path / "key")

    rented.up(first, second)
    _, text = trial.foretold_and_done()
    assert "**Machines:** `gpu1` added." in text
    rented.up(second)
    _, text = trial.foretold_and_done()
    assert "**Machines:** `gpu0` removed." in text

    del second["host_key"]
    rented.up(first, second)
    where = ["--stack", "large", "--config-file", str(config), "--state-dir", str(tmp_path / "state")]
    assert main([*where, "--engine", "cli", "trust"]) == 1, "nobody is at the terminal"
    shown = capsys.readouterr()
    assert f"gpu1  127.0.0.1:{second['port']}  SHA256:" in shown.out + shown.err
    assert "gpu0" not in shown.out + shown.err

    rented.destroy()
    refused = trial.deployment().preview().failures
    assert "tailrack:sites[2].hosts_from.output: 'hosts' is not an output of stack" in refused[0].message
    summary = trial.deployment().destroy()
    assert summary.ok, "to destroy a stack, no other has to be there"
