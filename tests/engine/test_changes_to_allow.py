"""A change that nobody asked for by name is found in a preview, and `up` touches nothing, under either engine."""

import shutil
import subprocess
from pathlib import Path

import pytest

from cli.changes_to_allow import Checks
from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import CliError
from cli.run_events import Event
from tests.engine.conftest import Deploy, needs_cli
from tests.engine.stack_under_test import Stack

POLICY = Path(__file__).parents[2] / "policy"
PROGRAM = """
class Validation(pulumi.ComponentResource):
    def __init__(self):
        floors = {{"floors": {floors}, "scopes": ["rack", "node"]}}
        super().__init__("tailrack:validation:NcclValidation", "validation", floors)

class Head(pulumi.ComponentResource):
    def __init__(self):
        super().__init__("tailrack:cluster:HeadNode", "door", {{"hostKey": "{key}"}})
        machine = local.Command("door-container", create="true", triggers=[{made}])
        step("door-head", "echo {said}", options={{"parent": self, "deleted_with": machine}})

Validation()
Head()
pulumi.export("cluster", {{"name": "trial"}})
"""


def written(
    stack: Stack, floors: str = '{"rack": 0.5}', key: str = "ssh-ed25519 one", said: str = "one", made: int = 1
) -> None:
    stack.write(PROGRAM.format(floors=floors, key=key, said=said, made=made), {"unused": 1})


def found(deployment: Deployment, events: list[Event]) -> list[str]:
    """The names of what a preview finds."""
    events.clear()
    assert deployment.preview().ok
    checks = Checks(())
    for event in events:
        checks.on_event(event)
    return [finding.name for finding in checks.refused]


def test_a_floor_taken_away_is_found_and_refused_until_it_is_asked_for(deploy: Deploy, stack: Stack) -> None:
    written(stack)
    events: list[Event] = []
    deployment = deploy("dev", events)
    assert deployment.up(Checks(())).ok, "a new stack has nothing that could be taken away"
    assert found(deployment, events) == []

    written(stack, floors="{}", said="two")
    assert found(deployment, events) == ["floor-removed"]
    with pytest.raises(
        CliError, match=r"refused, nothing was changed:\n  floor-removed: rack loses its floor of 0.5 GB/s"
    ):
        deployment.up(Checks(()))
    assert found(deployment, events) == ["floor-removed"], "the floor of the last run is still the one that counts"
    assert [asked.stdin for asked in stack.host.take()] == ["echo one"]

    assert deployment.up(Checks(["floor-removed"])).ok
    assert [asked.stdin for asked in stack.host.take()] == ["echo two"]
    assert found(deployment, events) == []


def test_the_checks_find_a_replaced_or_removed_head_node_or_host_key(deploy: Deploy, stack: Stack) -> None:
    written(stack)
    events: list[Event] = []
    deployment = deploy("dev", events)
    assert deployment.up().ok
    written(stack, key="ssh-ed25519 two")
    assert found(deployment, events) == ["head-replaced"]
    written(stack, made=2)
    assert found(deployment, events) == ["head-replaced"]
    stack.write('pulumi.export("cluster", {"name": "trial"})', {"unused": 1})
    assert "head-replaced" in found(deployment, events)


@needs_cli
def test_a_policy_pack_without_its_packages_ends_with_the_command_to_run(stack: Stack, tmp_path: Path) -> None:
    pack = shutil.copytree(POLICY, tmp_path / "policy", ignore=shutil.ignore_patterns("lib*", "python3*"))
    stack.write("")
    output = stack.cli(tmp_path).run("preview", "--policy-pack", str(pack)).stdout
    assert f"not installed; run: cd '{pack}' && pulumi install" in output


@needs_cli
def test_the_policy_pack_refuses_the_same_for_plain_pulumi(stack: Stack, tmp_path: Path) -> None:
    if not (POLICY / "venv/lib").is_dir() and subprocess.run(["pulumi", "install"], cwd=POLICY, check=False).returncode:
        pytest.skip("the policy pack's packages cannot be installed")
    written(stack)
    cli = stack.cli(tmp_path)

    def refused(*words: str) -> list[str]:
        done = cli.run(*words, "--policy-pack", str(POLICY))
        names = [name for name in ("floor-removed", "head-replaced") if f"{name}: " in done.stdout]
        assert (done.returncode == 0) == (names == []) == ("To allow it, add" not in done.stdout), done.stdout
        return names

    assert refused("up", "--yes", "--skip-preview") == []
    written(stack, floors="{}", key="ssh-ed25519 two")
    assert refused("preview") == ["floor-removed", "head-replaced"]
    stack.write("")
    assert refused("preview") == ["head-replaced"]
    written(stack, key="ssh-ed25519 two")
    cli.run("config", "set-all", "--plaintext", 'tailrack:allow=["head-replaced"]')
    assert refused("up", "--yes") == []


RELEASED = """
class Head(pulumi.ComponentResource):
    def __init__(self):
        super().__init__("tailrack:cluster:HeadNode", "door", {{"slurmRelease": "{release}"}})
        said = "echo '{{\\"slurm_version\\": \\"{there}\\"}}' # {release}"
        step("door-head", said, options={{"parent": self}})

Head()
pulumi.export("cluster", {{"name": "trial"}})
"""


def test_an_impossible_release_is_rejected_with_the_upgrade_path_in_any_case(deploy: Deploy, stack: Stack) -> None:
    def written_for(release: str, there: str = "23.11.4") -> None:
        stack.write(RELEASED.format(release=release, there=there), {"unused": 1})

    written_for("23.11.4")
    events: list[Event] = []
    deployment = deploy("dev", events)
    assert deployment.up(Checks(())).ok
    stack.host.take()

    written_for("26.05.3")
    assert found(deployment, events) == ["slurm-release"]
    for asked in ((), ("slurm-release",)):
        with pytest.raises(
            CliError, match=r"refused, nothing was changed:\n  slurm-release: .*Upgrade by way of 25[.]05: set"
        ) as refused:
            deployment.up(Checks(asked))
        assert "tailrack:allow" not in str(refused.value)
    written_for("23.02.7")
    assert found(deployment, events) == ["slurm-release"]
    assert stack.host.take() == []

    written_for("25.05.3", there="25.05.3")
    assert deployment.up(Checks(())).ok
    assert len(stack.host.take()) == 1
    written_for("26.05.3")
    assert found(deployment, events) == []
