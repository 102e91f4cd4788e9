"""Steps composed from roles: what a script reads is what it is given, and leaving is the way back."""

from __future__ import annotations

import ast
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from components.measurement import plan, training
from components.node.step.values import names
from components.roles.role import FOLDER, Role, template
from components.steps import composition
from tests.unit.configs import RawConfig
from tests.unit.phases import ORDER, called, inner_calls
from tests.unit.recorded import Build
from tests.unit.shell import ROLES

FILES = sorted(path for path in [*FOLDER.rglob("*.sh"), *composition.SCRIPTS.glob("*.sh")])
PROGRAMS = sorted(path for path in FOLDER.glob("*/templates/*") if path.is_file())
STEPS = {name: phases for name, phases in vars(composition).items()
         if name.isupper() and isinstance(phases, tuple) and name != "SHARED"}  # fmt: skip
PHASES = {phase for phases in STEPS.values() for phase in phases}
# What Slurm and Enroot set for programs that a step installs.
OF_JOBS = {"SLURM_JOB_NODELIST", "SLURM_HET_SIZE", "SLURMD_NODENAME", "ENROOT_ENVIRON", "ENROOT_ROOTFS", "TMPDIR"}
OF_JOBS |= {f"SLURM_JOB_{name}" for name in ("ID", "UID", "USER", "GID", "GPUS")}
OWN = {"HOST_NAME", "STEP_NAME", "STEP_REPAIR", "ANSWER"}
OF_CONTAINERS = {"enroot_pyxis", "container_smoke"}  # roles that a stack has only if it asks for them
PLANS = ("HEAD_EXPIRE_PLAN", "HEAD_FABRIC_PLAN")
FIXED = {*(name for role in ROLES for name in role.texts), "NODE_LEAVE_PLAN", *PLANS, "DRIVER"}
every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")


def read(text: str) -> set[str]:
    """Upper-case variables that a text reads and does not set, found in another way than the product does."""
    code = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
    names = {found[1] for found in re.finditer(r"(?<!\\)\$\{?([A-Z][A-Z0-9_]{2,})", code)}
    return {name for name in names if not re.search(rf"(^|[\s(;])(local )?{name}\+?=", code, re.MULTILINE)}


@pytest.mark.parametrize("config", ["lab_config", "hosts_config"])
def test_the_names_that_a_step_is_given_are_those_that_its_script_reads(
    build: Build, request: pytest.FixtureRequest, config: str
) -> None:
    stack = build(request.getfixturevalue(config))
    for step in stack.remote:
        given = stack.header(step.name).keys()
        plan = json.loads(stack.plan_text(step.name))
        # os-release(5) is read by the shell itself.
        known = {
            "BASHPID",
            "EUID",
            "SECONDS",
            "RANDOM",
            "VERSION_CODENAME",
            "BASH_REMATCH",
            "SSH_ORIGINAL_COMMAND",
            *OF_JOBS,
        }
        phases = {
            name
            for call in inner_calls(plan["calls"])
            if call[0] == "python"
            for name in names(getattr(importlib.import_module(call[1]), call[2]))
        }
        assert given == (read(plan["bash"]) | phases) - OWN - known - FIXED, step.name


@every_file
def test_no_script_has_a_default_for_what_it_is_given(build: Build, hosts_config: RawConfig, path: Path) -> None:
    stack = build(hosts_config)
    given = {name for step in stack.remote for name in stack.header(step.name)}
    text = path.read_text(encoding="utf-8")
    assert not set(re.findall(r"\$\{([A-Z][A-Z0-9_]*):?[-=]", text)) & given
    assert not set(re.findall(r"^([A-Z][A-Z0-9_]*)=", text, re.MULTILINE)) & given


def test_a_value_that_a_script_reads_has_the_same_name_in_a_python_file() -> None:
    every = [Role(name) for name in ORDER]
    steps = [composition.compose(every, phases, leaves=name.endswith("HEAD")) for name, phases in STEPS.items()]
    programs = [composition.leave_program(every), composition.expire_program(every), composition.again_program()]
    reads = {name for script in (*steps, *programs, plan.script(), training.script()) for name in script.reads}
    assert len(reads) > 150
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in FOLDER.parent.rglob("*.py")]
    literals = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert reads - literals == set()


def test_the_values_of_a_role_start_with_its_name_and_no_two_roles_have_one_name() -> None:
    names = [(role.name, name) for role in ROLES for name in (*role.values, *role.secrets, *role.texts)]
    assert [name for role, name in names if not name.startswith(f"{role}_".upper())] == []
    assert len({name for _, name in names}) == len(names)


def test_the_values_of_a_step_belong_to_a_role_the_head_node_the_node_or_the_pool(
    build: Build, hosts_config: RawConfig
) -> None:
    stack = build(hosts_config)
    prefixes = (*(f"{role}_".upper() for role in ORDER), "HEAD_", "NODE_", "POOL_")
    measuring = stack.validations
    for step in stack.remote:
        if step.name not in measuring:
            assert not [name for name in stack.header(step.name).keys() - OWN if not name.startswith(prefixes)]


def test_every_role_is_a_folder_with_a_role_and_every_folder_is_in_the_order() -> None:
    folders = {path.name for path in FOLDER.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(ORDER)
    assert all((FOLDER / name / "role.py").is_file() for name in ORDER)
    assert [role.name for role in ROLES] == [
        name for name in ORDER if name not in {*OF_CONTAINERS, "slurm_release", "restore", "exporters", "fio"}
    ]


@pytest.mark.parametrize("step", STEPS)
def test_no_two_functions_of_a_step_have_one_name_whatever_the_config_asks_for(step: str) -> None:
    every = [Role(name) for name in ORDER]
    # Raises ValueError else; bash would run the later one for both.
    assert composition.compose(every, STEPS[step], leaves=step.endswith("HEAD")).calls


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: f"{path.parts[-3]}/{path.name}")
def test_no_two_functions_of_a_program_have_one_name(path: Path) -> None:
    functions = re.findall(r"^(\w+)\(\)", template(path.parts[-3], path.name), re.MULTILINE)
    assert sorted(set(functions)) == sorted(functions)


def test_a_function_that_another_file_has_is_an_error_with_both_files(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(composition, "FOLDER", tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "machine.sh").write_text(f"#!/bin/bash\n{name}_machine() {{ ask; }}\nask() {{ :; }}\n")
    with pytest.raises(ValueError, match=r"two/machine\.sh has a function ask, which one/machine\.sh has too"):
        composition.compose([Role("one"), Role("two")], composition.HEAD)


def test_every_script_of_a_role_is_a_phase_or_used_by_one() -> None:
    # Of programs too (role.template), which use bash that all steps share besides.
    lines = [
        line
        for path in (*FILES, *PROGRAMS)
        for line in re.findall(r"^# uses: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    used = {name for line in lines for name in line.split() if "/" in name} | {"machine/checks"}
    # Phases in Python call functions of these.
    for module in FOLDER.glob("*/*.py"):
        used |= {
            name
            for names in re.findall(r"^BASH = \((.*)\)$", module.read_text(), re.MULTILINE)
            for name in re.findall(r'"(.+?)"', names)
        }
    for path in FOLDER.rglob("*.sh"):
        name = f"{path.parent.name}/{path.stem}"
        assert path.stem in PHASES or name in used, name
    assert all((FOLDER / f"{name}.sh").is_file() for name in used)


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.sh")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_phase_of_a_role_is_a_function_of_both_their_names(path: Path) -> None:
    if path.stem in PHASES:
        assert f"\n{path.parent.name}_{path.stem}() {{" in path.read_text(encoding="utf-8")


def test_a_machine_goes_through_the_roles_in_their_order() -> None:
    calls = [call.split("/")[0] for call in called(composition.compose(ROLES, composition.NODE).calls)]
    assert calls == [
        "machine", "firewall", "names", "names", "users", "ssh_trust", "ssh_trust", "nfs_exports", "nfs_exports", "gpu",
        "health", "scratch", "slurm", "pam_slurm_adopt", "monitoring", "mlflow", "held_packages",
    ]  # fmt: skip


def test_a_member_is_released_by_all_before_any_forgets_it_in_the_reverse_order() -> None:
    script = composition.compose(ROLES, composition.REGISTER)
    assert script.undo
    assert [(role, part) for role, _, part in (call.split("/") for call in called(script.calls, "down"))] == [
        ("slurm", "release"), ("ssh_trust", "release"), ("monitoring", "forget"), ("slurm", "forget"),
        ("health", "forget"), ("nfs_exports", "forget"), ("costs", "forget"), ("ssh_trust", "forget"),
        ("names", "forget"),
    ]  # fmt: skip


def test_leaving_is_the_same_list_in_reverse_on_a_node_and_on_the_head() -> None:
    leaves = [
        f"{role.name}/leave"
        for role in reversed(ROLES)
        if any((FOLDER / role.name / f"leave.{kind}").is_file() for kind in ("sh", "py"))
    ]
    names = [leave.split("/")[0] for leave in leaves]
    assert names.index("grafana") < names.index("backup") < names.index("monitoring")
    assert names[-2:] == ["tailnet", "machine"]
    assert called(composition.leave_program(ROLES).calls, "leave") == leaves
    assert called(composition.compose(ROLES, composition.HEAD, leaves=True).calls, "down") == leaves
