"""Whatever a role is: clusters and pools bring the same of it to their machines, and nobody else has to know of it."""

import copy
import importlib
import re
from itertools import chain
from pathlib import Path

import pytest

from components.node.step.values import arguments
from components.roles.facts import whole
from components.roles.order import in_order, roles
from components.roles.role import Role, SlurmKey
from components.roles.slurm.slurm.slurm_conf import keys_of_roles
from components.steps import composition
from components.steps.composition import CHECK as GATE_PHASES
from components.steps.composition import answer as answer_of
from stacks.config import parse
from tests.unit.components.roles.test_backup import SFTP
from tests.unit.configs import HOSTS, LAB, MONITORING, RawConfig, refusal
from tests.unit.phases import inner_calls
from tests.unit.recorded import Build, public_key
from tests.unit.stacks.test_pool import CONTAINERS, build_pool

PROJECT = Path(__file__).parents[4]
# A value of its own in every section that nodes read of.
MINE: RawConfig = {
    **LAB,
    "users": [{"name": "bob", "uid": 7001, "groups": ["vision"], "github": "bob-b", "oidc": "bob@a.org"}],
    "oidc": {"issuer": "https://a.org", "client_id": "b", "checksums": {"opkssh-linux-amd64": "a" * 64}},
    "groups": [{"name": "vision", "gid": 7002}],
    "github_keys": {"bob-b": [public_key("laptop")]},
    "tailnet": {"tag": "tag:mine", "relay": {"node": "head"}},
    "storage": {"path": "/export/mine", "mount": "/data"},
    "slurm": {"job_limit_seconds": 77, "ssh_needs_job": False, "release": "25.11.7", "release_sha256": "a" * 64},
    "fabric": {"roce": {"apply": True}},
    "mlflow": {"port": 5055},
    "containers": {**CONTAINERS, "artifacts": "https://mirror.example.org/files", "nvidia_libraries": False},
}
RICH: RawConfig = {
    **MINE,
    "backup": SFTP,
    "job_reports": {"mail": {"sender": "a@b.c", "smarthost": "b.c:25"}},
    "monitoring": MONITORING,
}


@pytest.mark.parametrize("config", [LAB, MINE], ids=["defaults", "values of its own"])
def test_a_pool_node_gets_the_same_role_values_as_a_cluster_node(build: Build, config: RawConfig) -> None:
    cluster = build(copy.deepcopy(config))
    pool = build_pool(cluster)
    for step in ("prepare", "register", "node"):
        own, theirs = cluster.header(f"b1-{step}"), pool.header(f"c1-{step}")
        differing = {name for name in own.keys() | theirs.keys() if own.get(name) != theirs.get(name)}
        assert {name for name in differing if not name.startswith(("node_", "host_", "step_", "pool_"))} == set(), step
        script = re.compile(r"f=\.tailrack/(?:[\w.]+/)?scripts/([0-9a-f]{64});")
        digests = [
            script.findall(stack[f"{node}-{step}"].inputs["create"]) for stack, node in ((cluster, "b1"), (pool, "c1"))
        ]
        assert digests[0] == digests[1], step


@pytest.mark.parametrize("raw", [LAB, HOSTS, MINE, RICH], ids=["lab", "hosts", "values of its own", "all roles"])
def test_every_phase_in_python_can_read_the_values_of_its_steps(build: Build, raw: RawConfig) -> None:
    cluster = build(copy.deepcopy(raw), secret=["backup"])
    stacks = [cluster, build_pool(cluster)] if raw is not HOSTS else [cluster]
    read = set()
    for stack in stacks:
        for step in (one for one in stack.remote if "start-" in one.inputs["create"]):
            plan = stack.plan(step.name)
            values = {**plan["texts"], **stack.request(step.name)["values"]}
            for kind, *words in inner_calls(plan["calls"]):
                if kind == "python":
                    module, name = words
                    if arguments(getattr(importlib.import_module(module), name), values):
                        read.add(module)
    assert len(read) > 15


def test_each_task_is_in_its_step_and_each_file_is_of_one_role() -> None:
    every = roles(parse(copy.deepcopy(RICH), base_dir=Path(), secret_keys=frozenset({"backup"})))
    phases = [(role, phase) for role in every for phase in role.tasks]
    assert len(phases) > 5
    assert [role.name for role, phase in phases if not composition._takes_part(role, phase)] == []
    owners: dict[str, set[str]] = {}
    for role in every:
        for file in chain.from_iterable(role.files.values()):
            owners.setdefault(file.path, set()).add(role.name)
    assert len(owners) > 30
    assert {path: names for path, names in owners.items() if len(names) > 1} == {}


# What roles say of one another.


def test_roles_that_wait_for_one_another_are_named() -> None:
    with pytest.raises(ValueError, match=r"roles that wait for one another: .*b"):
        in_order([Role("a", after=("b",)), Role("b", after=("a",))])
    with pytest.raises(ValueError, match="two roles have the name a"):
        in_order([Role("a"), Role("a")])


def test_two_roles_that_set_one_key_of_slurm_conf_are_an_error_and_lists_are_joined() -> None:
    one, other = (
        Role(name, slurm_conf={"Epilog": SlurmKey(name, ""), "PrologFlags": SlurmKey(name, "")}) for name in "ab"
    )
    with pytest.raises(ValueError, match=r"Epilog of slurm\.conf is set by role b, and by another role"):
        keys_of_roles([one, other])
    lists = [Role(name, slurm_conf={"PrologFlags": SlurmKey(name, "")}) for name in ("Contain", "X11", "Contain")]
    assert keys_of_roles(lists) == {"PrologFlags": "Contain,X11"}


def test_an_answer_contains_only_declared_facts_within_their_bounds() -> None:
    disks = {"check": {"disks": whole(0, 64)}}
    answer = answer_of(
        [Role("disks", facts=disks), Role("clock", facts={"node": {"offset": whole(0, 9)}})], GATE_PHASES
    )
    assert answer.read("a1-prepare", '{"disks": 8, "offset": 1, "x": "y"}') == {"disks": 8, "problem": ""}
    assert answer.read("a1-prepare", '{"disks": 65}')["problem"] == "its answer has no valid disks"
    with pytest.raises(ValueError, match="disks is reported by role b and by another role"):
        answer_of([Role(name, facts=disks) for name in "ab"], GATE_PHASES)


def test_the_config_combines_the_lists_of_a_user_and_of_roles_and_rejects_a_roles_key(build: Build) -> None:
    raw = {**LAB, "slurm": {"settings": {"PropagateResourceLimitsExcept": "NOFILE", "PrologFlags": "Contain,X11"}}}
    conf = build(copy.deepcopy(raw)).header("head-head")["slurm_slurm_conf"].splitlines()
    assert "PropagateResourceLimitsExcept=MEMLOCK,NOFILE" in conf
    assert [line for line in conf if line.startswith("PrologFlags")] == ["PrologFlags=Contain,X11"]
    words = r"tailrack:slurm.settings.taskprolog: .*the network for NCCL and MPI.*remove it"
    assert re.search(words, refusal({"slurm": {"settings": {"taskprolog": "/mine"}}}))
