"""Commands that the driver offers for copying: of the stack that ran, of the engine asked for, for its machines."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli import commands
from cli.output.failures import with_remedies
from cli.output.make_command import Make
from cli.output.next_commands import next_commands
from cli.pulumi.deployment import Deployment
from cli.pulumi.find_engine import Found
from cli.pulumi.workspace import PROJECT, Workspace
from cli.run_events import Failure, Summary
from components.steps.label import StepLabel
from tests.unit.cli.conftest import Play
from tests.unit.configs import HOST_KEY, HOSTS, LAB, RawConfig


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"PULUMI_CONFIG_PASSPHRASE": "none"})


def deployment(folder: Path, raw: RawConfig, stack: str = "prod") -> Deployment:
    """The stack of a config, as the driver runs it."""
    folder.mkdir(exist_ok=True)
    (folder / "Pulumi.yaml").write_text((PROJECT / "Pulumi.yaml").read_text())
    file = folder / f"Pulumi.{stack}.yaml"
    file.write_text(yaml.safe_dump({"config": {f"tailrack:{key}": value for key, value in raw.items()}}))
    return Deployment(Workspace(folder, stack, file, folder / "state"), Found(None, ""), print)


def nodes(**sites: str) -> dict[str, Any]:
    rows = [{"name": name, "site": site, "login": name == "login1"} for name, site in sites.items()]
    return {"cluster": {"head": "door", "nodes": rows}}


def offered(made: Deployment, outputs: dict[str, Any]) -> list[str]:
    return [command for command, _ in next_commands(made, outputs)]


def at(kind: str) -> RawConfig:
    """A config of one site of a kind, with the head node there."""
    return {**HOSTS, "head": {"name": "door", "site": "east"}, "sites": [{"name": "east", "kind": kind}]}


def pool(kind: str) -> RawConfig:
    return {"kind": "pool", "cluster": "prod", "sites": [{"name": "east", "kind": kind}]}


CONFIGS = {
    "lab": LAB,
    "hosts": HOSTS,
    "local": at("local"),
    "cloud": at("aws"),
    "pool": pool("hosts"),
    "labpool": pool("lab"),
}
RACK = nodes(door="rack", dgx1="rack", dgx2="rack")


@pytest.mark.parametrize("engine", ["", "inprocess"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_every_make_command_after_an_up_is_of_the_stack_and_the_engine_that_were_asked(
    kind: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE", engine)
    commands = offered(deployment(tmp_path / "a", CONFIGS[kind]), RACK)
    made = [command for command in commands if command.startswith("make ")]
    assert len(made) >= 2
    for command in made:
        words = shlex.split(command)
        assert "STACK=prod" in words
        assert ("ENGINE=inprocess" in words) == bool(engine)
    assert any(re.match(r"make down STACK=prod( ENGINE=inprocess)?$", command) for command in made)


@pytest.mark.parametrize("kind", ["hosts", "local", "cloud", "pool"])
def test_no_command_of_the_lab_is_offered_to_machines_that_are_none_of_it(kind: str, tmp_path: Path) -> None:
    assert not any("make shell" in command for command in offered(deployment(tmp_path / "a", CONFIGS[kind]), RACK))


def test_a_job_is_started_by_the_way_that_the_head_node_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = offered(deployment(tmp_path / "lab", LAB), nodes(head="cloud-a", a1="cloud-a", b1="cloud-b"))
    assert lab[0] == "make shell STACK=prod NODE=head COMMAND=\"su - ada -c 'srun -N3 --switches=2 hostname'\""
    hosts = offered(deployment(tmp_path / "hosts", HOSTS), RACK)
    way, last = hosts[0].rsplit(" root@192.0.2.1 ", 1)
    assert way == f"ssh -i {tmp_path}/hosts/key"
    assert shlex.split(last) == ["su - ada -c 'srun -N2 hostname'"]
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert offered(deployment(tmp_path / "here", at("local")), RACK)[0] == "sudo su - ada -c 'srun -N2 hostname'"
    (first, what), *_ = next_commands(deployment(tmp_path / "aws", at("aws")), RACK)
    assert (first, what) == ("srun -N2 hostname", "run a job on two nodes: on the head node door, as ada")
    of_pool = offered(deployment(tmp_path / "pool", pool("lab")), RACK)
    assert of_pool[0] == "make shell STACK=prod NODE=door COMMAND=sinfo"


def test_each_measurement_is_offered_again_and_a_single_node_without_a_floor_gets_one(tmp_path: Path) -> None:
    rack, alone = {"verdict": "PASS", "rows": [{}]}, {"verdict": "UNJUDGED", "rows": [{}]}
    measured = {**RACK, "validation": {"rack": rack, "node": {"dgx1": alone}}}
    again, floors = offered(deployment(tmp_path / "hosts", HOSTS), measured)[1:3]
    assert shlex.split(again)[-1] == "su - ada -c 'sh .tailrack/validation/rack/repeat'"
    assert floors.startswith("make floors ")


@pytest.mark.parametrize(
    ("computes", "there", "job"),
    [
        (False, nodes(head="one", a1="one"), "srun hostname"),
        (True, nodes(head="one", a1="one"), "srun -N2 hostname"),
        (True, nodes(head="one", a1="one", login1="two"), "srun -N2 hostname"),
        (False, nodes(head="one", a1="two", a2="two"), "srun -N2 hostname"),
        (False, nodes(head="one", a1="one", b1="two"), "srun -N2 --switches=2 hostname"),
        (True, nodes(head="one", a1="one", b1="two"), "srun -N3 --switches=2 hostname"),
    ],
)
def test_the_offered_job_fits_the_nodes(computes: object, there: dict[str, Any], job: str, tmp_path: Path) -> None:
    raw = {**LAB, "head": {**LAB["head"], "compute": computes}}
    assert f"'{job}'" in offered(deployment(tmp_path / "a", raw), there)[0]


def test_a_measurement_without_a_floor_offers_floors_and_an_elastic_pool_its_program(tmp_path: Path) -> None:
    unjudged = {"rack": {"verdict": "UNJUDGED", "rows": [{}]}}
    rack = deployment(tmp_path / "rack", HOSTS)
    assert "make floors STACK=prod" in offered(rack, {**RACK, "validation": unjudged})
    assert "make floors STACK=prod" not in offered(rack, {**RACK, "validation": {}})
    elastic = deployment(tmp_path / "pool", {**pool("lab"), "elastic": {"max": 2}})
    assert "make elastic STACK=prod" in offered(elastic, RACK)


def test_a_setting_of_all_hosts_of_a_site_belongs_to_its_head_node(tmp_path: Path) -> None:
    host = {"name": "door", "address": "192.0.2.1", "host_key": HOST_KEY}
    site = {"name": "rack", "kind": "hosts", "preset": "lambda", "private_key_file": "key", "port": 2222}
    made = deployment(tmp_path / "a", {**HOSTS, "sites": [{**site, "hosts": [host]}]})
    command = offered(made, RACK)[0]
    assert command.startswith(f"ssh -p 2222 -i {tmp_path}/a/key ubuntu@192.0.2.1 ")
    assert shlex.split(command)[-1] == "sudo su - ada -c 'srun -N2 hostname'"


TRUST = "'make trust STACK=prod'"
RENT = "End this machine in the cloud's console; then run up again, which rents another"


@pytest.mark.parametrize(
    ("step", "message", "remedy"),
    [
        ("a1-node", "host key mismatch", TRUST),
        ("a1-host-key", "host key mismatch", RENT),
        ("a1-host-key", "after 5 failed attempts: ssh: no common algorithm for host key", RENT),
        ("a1-host-key", "Host key is not trusted", RENT),
    ],
)
def test_the_remedy_for_another_host_key_is_trust_or_another_machine(step: str, message: str, remedy: str) -> None:
    command = StepLabel(step, "a1", "a1: Slurm").on("true")
    (told,) = with_remedies(Summary(failures=[Failure("u", message, command)]), Make("prod")).failures
    assert remedy in told.message
    assert ("make trust" in told.message) == (remedy == TRUST)


@pytest.mark.parametrize("command", ["status", "report", "floors"])
def test_without_a_cluster_the_command_that_makes_it_is_of_the_same_stack(
    command: str, play: Play, tmp_path: Path, capsys: Any
) -> None:
    play()
    commands.main(["--stack", "prod", "--state-dir", str(tmp_path), command])
    assert "run make up STACK=prod" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ({"NODE": "a1"}, "make shell STACK=prod NODE=a1"),
        ({"COMMAND": "echo $HOME"}, "make shell STACK=prod COMMAND='echo $$HOME'"),
        ({"COMMAND": "a 'b' \"c\""}, "make shell STACK=prod COMMAND='a '\"'\"'b'\"'\"' \"c\"'"),
        ({"COMMAND": "a 'b'"}, "make shell STACK=prod COMMAND=\"a 'b'\""),
        ({"COMMAND": ""}, "make shell STACK=prod"),
    ],
)
def test_a_command_is_quoted_for_the_shell_and_for_make(words: dict[str, str], command: str) -> None:
    assert Make("prod")("shell", **words) == command
