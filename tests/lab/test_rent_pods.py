"""Pods that a stack rents from the played cloud: at a mapped port, with verified host keys, and returned at the end."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import lab_commands
from cli.pulumi.deployment import Deployment
from cli.run_events import Event, Summary
from lab import docker_daemon, network
from lab.identity import CHECKOUT, lab_id
from lab.keys import ensure_client_key
from lab.spec import NetworkSpec
from stacks.sites.rented.model import RentedNode
from stacks.sites.rented.present import look
from stacks.sites.runpod.model import RunPodSite
from tests.engine.conftest import deploy, host, stack  # noqa: F401
from tests.engine.stack_under_test import Stack
from tests.played_cloud.account import Account
from tests.played_cloud.pods import Pods
from tests.played_cloud.server import WRITE, PlayedCloud, serve

LAB = lab_id(CHECKOUT, "rentpods")
API_KEY, TYPE, REGION = "rpa_played.abc123", "NVIDIA_L4", "us-ks-2"
PROGRAM = """
from stacks.sites.rented.machines import machines
from stacks.sites.rented.model import RentedNode
from stacks.sites.rented.present import Rental
from stacks.sites.runpod.model import RunPodSite

values = dict(
    name="pods", kind="runpod", region=REGION, image="runpod/base", user="root", private_key_file=pathlib.Path("key"),
    base_url=URL, boot_minutes=2, tags={}, fewer="fail", disk_gb=50, volume_gb=100,
)
site = RunPodSite.model_construct(**values)
node = RentedNode(False, True, name="p1", site="pods", offers=((TYPE, REGION),), pod=True)
made = machines([site], [node], "dev", Rental(API_KEY, moved=MOVED))
way = made.hosts["p1"].connection
pulumi.export("rented", made.rented)
pulumi.export("way", {"host": way.host, "port": way.port, "user": way.user, "host_key": way.host_key})
"""


@pytest.fixture(scope="module")
def cloud(images: None) -> Iterator[PlayedCloud]:
    """A played RunPod with one free pod."""
    client = docker_daemon.connect()
    network.up(client, NetworkSpec(lab=LAB, state_dir=lab_commands.STATE_DIR, sites={REGION: None}))
    client.close()
    account = Account(Pods(LAB, lab_commands.STATE_DIR, [REGION]), {TYPE: 44})
    account.capacity = {(TYPE, REGION): 1}
    with serve(PlayedCloud(account, {API_KEY: WRITE})) as played:
        yield played
    lab_commands.clear_away(LAB)


class Trial:
    """A stack of one rented pod."""

    def __init__(self, stack: Stack, cloud: PlayedCloud, deploy: Callable[[str, list[Event]], Deployment]) -> None:  # noqa: F811
        self._stack, self._cloud, self._deploy = stack, cloud, deploy
        self.events = list[Event]()

    def deployment(self, moved: dict[str, str] | None = None) -> Deployment:
        url = self._cloud.url_of("runpod")
        values = {"URL": url, "API_KEY": API_KEY, "TYPE": TYPE, "REGION": REGION, "MOVED": moved or {}}
        self._stack.write("".join(f"{name} = {value!r}\n" for name, value in values.items()) + PROGRAM, {"x": "y"})
        self.events.clear()
        return self._deploy("dev", self.events)

    def up(self, moved: dict[str, str] | None = None) -> dict[str, Any]:
        deployment = self.deployment(moved)
        summary: Summary = deployment.up()
        assert summary.ok, [failure.message for failure in summary.failures]
        return deployment.outputs()

    def touched(self) -> set[str]:
        done = (event for event in self.events if event.kind == "done" and event.operation != "same")
        return {event.name for event in done if event.type.startswith("command:")}


@pytest.fixture
def trial(
    stack: Stack,  # noqa: F811
    cloud: PlayedCloud,
    deploy: Callable[[str, list[Event]], Deployment],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Trial]:
    """A stack that is not up; at its end, nothing is rented."""
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    folder = lab_commands.STATE_DIR / LAB
    ensure_client_key(folder)
    shutil.copy(folder / "id_ed25519", stack.folder / "key")
    made = Trial(stack, cloud, deploy)
    yield made
    made.deployment().destroy()
    assert cloud.account.bill() == [], "the bill is not zero"


def ssh(way: dict[str, Any], key: Path, folder: Path, command: str) -> str:
    """Log in with the host key pinned, and return the output of a command."""
    known = folder / "known_hosts"
    known.write_text(f"[{way['host']}]:{int(way['port'])} {way['host_key']}\n")
    options = ["-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes"]
    words = ["ssh", *options, "-i", str(key), "-p", str(int(way["port"])), f"{way['user']}@{way['host']}", command]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


def test_a_pod_is_rented_keeps_its_host_key_at_another_port_and_is_returned(
    trial: Trial, cloud: PlayedCloud, tmp_path: Path
) -> None:
    key, before = lab_commands.STATE_DIR / LAB / "id_ed25519", cloud.account.launched
    first = trial.up()
    facts = first["rented"]["p1"]
    (machine,) = cloud.account.bill()
    assert f"{facts['address']}:{facts['port']}" == machine.address
    assert facts["price_per_hour"] == 0.44
    assert first["way"]["host_key"].startswith("ssh-ed25519 ")
    assert (
        ssh(first["way"], key, tmp_path, "id -u; tr '\\0' '\\n' </proc/1/environ | grep -c tailrack_host_key || true")
        == "0\n0\n"
    )

    cloud.account.restart(machine.id)
    site = RunPodSite.model_construct(name="pods", kind="runpod", fewer="fail", base_url=cloud.url_of("runpod"))
    node = RentedNode(False, True, name="p1", site="pods", offers=((TYPE, REGION),))
    present = look([site], [node], {"runpod": API_KEY}, "dev", first["rented"])
    assert present.moved == {"p1": machine.address}
    second = trial.up(dict(present.moved))
    assert trial.touched() == {"p1-machine"}
    assert second["way"]["port"] != first["way"]["port"]
    assert second["way"]["host_key"] == first["way"]["host_key"]
    assert ssh(second["way"], key, tmp_path, "id -u") == "0\n"
    assert cloud.account.launched == before + 1

    trial.up(dict(present.moved))
    assert trial.touched() == set()


def test_a_pod_with_another_host_key_gets_no_secret(trial: Trial, cloud: PlayedCloud) -> None:
    cloud.account.faults.other_host_key = 1
    summary = trial.deployment().up()
    assert not summary.ok
    (failure,) = (failure for failure in summary.failures if failure.urn.endswith("::p1-host-key"))
    assert "End this machine in the cloud's console" in failure.message
