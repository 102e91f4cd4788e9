"""Steps composed from roles: what a script reads is what it is given, and leaving is the way back."""

import importlib
import json
import re

import pytest

from components.measurement_jobs import plan
from components.node.step.values import names
from components.roles.role import FOLDER, Role
from components.steps import composition
from tests.unit.phases import ORDER, called, inner_calls
from tests.unit.recorded import Build
from tests.unit.shell import ROLES

PROGRAMS = sorted(path for path in FOLDER.glob("*/*/templates/*") if path.is_file())
STEPS = {name: phases for name, phases in vars(composition).items()
         if name.isupper() and isinstance(phases, tuple)}  # fmt: skip
PHASES = {phase for phases in STEPS.values() for phase in phases}
# Roles that a stack has only if it asks for them.
OPTIONAL = {
    *("enroot_pyxis", "container_smoke", "slurm_release", "restore", "exporters", "fio"),
    *("backup", "budget", "grafana", "job_hangs", "job_reports"),
}
PLANS = ("head_expire_plan",)
FIXED = {*(name for role in ROLES for name in role.texts), "node_leave_plan", *PLANS, "driver"}


@pytest.mark.parametrize("config", ["lab_config", "hosts_config"])
def test_a_step_is_given_the_names_that_it_reads(build: Build, request: pytest.FixtureRequest, config: str) -> None:
    stack = build(request.getfixturevalue(config))
    assert len(stack.remote) > 10
    for step in stack.remote:
        given = stack.header(step.name).keys()
        plan = json.loads(stack.plan_text(step.name))
        calls = [call for call in inner_calls(plan["calls"]) if call[0] == "python"]
        reads = {name for call in calls for name in names(getattr(importlib.import_module(call[1]), call[2]))}
        assert given == reads - FIXED, step.name


def test_a_value_that_a_script_reads_has_the_same_name_in_a_python_file() -> None:
    every = [Role(name) for name in ORDER]
    steps = [composition.compose(every, phases, leaves=name.endswith("HEAD")) for name, phases in STEPS.items()]
    programs = [composition.leave_program(every), composition.expire_program(every)]
    reads = {name for script in (*steps, *programs, plan.script()) for name in script.reads}
    assert len(reads) > 150
    text = "".join(path.read_text(encoding="utf-8") for path in FOLDER.parent.rglob("*.py"))
    for role in ORDER:  # gives its values without its name: "lines" of the role users is users_lines
        for path in (FOLDER / "order.py", *FOLDER.glob(f"*/{role}/role.py")):
            text += re.sub(r'"(\w+)"', rf'"{role}_\1"', path.read_text(encoding="utf-8"))
    assert {name for name in reads if f'"{name}"' not in text} == set()


def test_every_role_is_a_folder_with_a_role_and_every_folder_is_in_the_order() -> None:
    folders = {path.name for path in FOLDER.glob("*/*") if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(ORDER) - {"fio"}  # only a package
    assert [role.name for role in ROLES] == [name for name in ORDER if name not in OPTIONAL]


def test_no_phase_of_a_role_is_bash_and_every_script_is_used_by_a_program() -> None:
    texts = [path.read_text(encoding="utf-8") for path in PROGRAMS]
    used = {name for text in texts for name in re.findall(r"^# uses: (\S+)$", text, re.MULTILINE)}
    assert {f"{path.parent.name}/{path.stem}" for path in FOLDER.glob("*/*/*.sh")} == {n for n in used if "/" in n}
    assert not [path for path in FOLDER.glob("*/*/*.sh") if path.stem in PHASES]


def test_a_machine_goes_through_the_roles_in_their_order() -> None:
    calls = [call.split("/")[0] for call in called(composition.compose(ROLES, composition.NODE).calls)]
    assert calls == [
        "machine", "machine", "firewall", "munge", "names", "users", "user_groups", "ssh_trust", "ssh_trust",
        "user_keys", "user_keys", "share", "share", "mounts", "gpu",
        "profiling", "health", "scratch", "slurm", "slurm", "spot_notice", "datasets", "pam_slurm_adopt",
        "monitoring", "mlflow", "held_packages",
    ]  # fmt: skip


def test_a_member_is_released_by_all_before_any_forgets_it_in_the_reverse_order() -> None:
    script = composition.compose(ROLES, composition.REGISTER)
    assert script.undo
    assert [(role, part) for role, _, part in (call.split("/") for call in called(script.calls, "down"))] == [
        ("slurm", "release"), ("mounts", "release"), ("share", "release"), ("ssh_trust", "release"),
        ("monitoring", "forget"), ("slurm", "forget"),
        ("health", "forget"), ("share", "forget"), ("costs", "forget"), ("ssh_trust", "forget"),
        ("names", "forget"),
    ]  # fmt: skip
