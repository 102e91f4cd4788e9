"""What the driver sees of the lab in a config, before the program has read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli import lab_commands
from cli.pulumi.deployment import Deployment
from cli.pulumi.find_engine import Found
from cli.pulumi.workspace import PROJECT, Workspace
from lab import images

SITES = """
config:
  tailrack:sites:
    - {name: one, kind: lab, head_like: server, pools: [{name: a}, {name: c, like: cloud}]}
    - {name: two, kind: lab}
"""


class Engine:
    """No Docker engine: it is only told to close."""

    def close(self) -> None: ...


def test_the_images_of_the_machines_that_a_config_names_are_built_before_the_stack_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", {"PULUMI_CONFIG_PASSPHRASE": "none"})
    (tmp_path / "Pulumi.yaml").write_text((PROJECT / "Pulumi.yaml").read_text())
    config = tmp_path / "Pulumi.dev.yaml"
    config.write_text(SITES)
    deployment = Deployment(Workspace(tmp_path, "dev", config, tmp_path / "state"), Found(None, ""), print)
    assert deployment.written.profiles == {"server", "cloud"}

    wanted: list[str] = []

    def ensure_images(_client: Any, tags: list[str]) -> None:
        wanted.extend(tags)

    monkeypatch.setattr(lab_commands, "have_docker", lambda: None)
    monkeypatch.setattr("lab.docker_daemon.connect", Engine)
    monkeypatch.setattr(images, "ensure_images", ensure_images)
    lab_commands.prepare(deployment.written.profiles)
    known = images.tags()
    assert set(wanted) == {known.node, known.control, known.profiles["server"], known.profiles["cloud"]}
