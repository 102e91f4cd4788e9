"""Parts of an older state that this version must not change: names of steps, triggers, commands that make secrets."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import json_format  # type: ignore[import-untyped]
from pulumi.runtime import mocks

from components.steps.former_names import FORMER, current_name, former_names
from components.steps.label import StepLabel
from tests.unit.configs import HOST_KEY, HOSTS, LAB, PRIVATE_KEY, RawConfig
from tests.unit.recorded import Build

BACKUP: RawConfig = {"target": "sftp:keeper@192.0.2.9:/srv/backup", "private_key": PRIVATE_KEY, "host_key": HOST_KEY}
GRAFANA: RawConfig = {"source": "https://dl.grafana.example/grafana.tar.gz", "sha256": "0" * 64}


def test_a_renamed_step_is_known_by_either_name() -> None:
    assert former_names("a1-check") == ["a1-gate"]
    assert former_names("rack-1-register") == ["rack-1-member"]
    assert former_names("a1-join") == former_names("check") == []
    assert current_name("a1-gate") == current_name("a1-check") == "a1-check"
    assert current_name("gate") == "gate"
    assert StepLabel.of(StepLabel("a1-gate", "a1", "x").on("true")) == StepLabel("a1-check", "a1", "x")


def test_no_former_name_is_the_name_of_another_step(build: Build) -> None:
    former = [name for names in FORMER.values() for name in names]
    assert len({*former, *FORMER}) == len(former) + len(FORMER)
    assert not {name.rpartition("-")[2] for name in build(LAB).names} & {*former}


def test_the_engine_is_asked_to_know_each_renamed_step_by_its_former_name(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    aliases: dict[str, list[str]] = {}
    register = mocks.MockMonitor.RegisterResource

    def kept(self: mocks.MockMonitor, request: Any) -> Any:
        message = json_format.MessageToDict(request)
        if names := [alias["spec"]["name"] for alias in message.get("aliases", [])]:
            aliases[request.name] = names
        return register(self, request)

    monkeypatch.setattr(mocks.MockMonitor, "RegisterResource", kept)
    names = build(HOSTS, again=True).names
    assert aliases == {name: former for name in names if (former := former_names(name))}
    assert {name.rpartition("-")[2] for name in aliases} == {*FORMER}


def test_what_copies_scripts_keeps_its_trigger_and_people_read_the_new_words(build: Build) -> None:
    """Another trigger would replace the copy on every machine."""
    copies = build(HOSTS).copies
    assert copies
    for copy in copies:
        machine = copy.name.removesuffix("-scripts")
        (trigger,) = copy.inputs["triggers"]
        assert trigger.startswith(f": {copy.name} {machine} '{machine}: put its scripts in place'; ")
        assert StepLabel.of(trigger) == StepLabel(copy.name, machine, f"{machine}: copy setup scripts")


@pytest.mark.parametrize(
    ("sections", "name", "words", "count"),
    [
        ({}, "munge-key", "munge key", 96),
        ({"backup": BACKUP}, "backup-password", "password of the backups", 33),
        ({"monitoring": {"grafana": GRAFANA}}, "grafana-password", "password of Grafana's admin", 24),
        ({"mlflow": {}}, "mlflow-password", "password of MLflow's administrator", 24),
    ],
)
def test_the_command_that_makes_a_secret_stays_as_it_was(
    sections: RawConfig, name: str, words: str, count: int, build: Build
) -> None:
    """Another command, its label included, would run and make another secret: no one could read the old backups."""
    command = StepLabel(name, "", words).on(f"head -c {count} /dev/urandom | base64 -w 0")
    assert build({**LAB, **sections}, secret=[*sections])[name].inputs["create"] == command
