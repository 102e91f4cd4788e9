"""Rules that keep the layers apart."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path
from typing import Literal

import pytest

from stacks.sites import KINDS

PROJECT = Path(__file__).parents[3]
COMPONENTS = sorted((PROJECT / "components").rglob("*.py"))
STACKS = sorted((PROJECT / "stacks").rglob("*.py"))
PURE = [path for path in COMPONENTS if "validation" in path.parent.parts]
# What is read of the config, and speaks to the one who wrote it: pydantic, no pulumi.
SETTINGS = [
    path
    for path in COMPONENTS
    if path.parent.name == "settings"
    or path.name in ("settings.py", "settings_ports.py", "settings_receivers.py", "cluster_settings.py")
]
# A role is a value: it is made without pulumi, and becomes a step elsewhere.
ROLES = [path for path in (PROJECT / "components" / "roles").rglob("*.py") if path not in SETTINGS]
# What a kind of site makes of pulumi resources is imported by its machines.py alone.
# And what sets its runtime reads none of the config.
MADE = (
    "machines.py",
    "network.py",
    "pods_policy.py",
    "cluster.py",
    "pool.py",
    "stack_outputs.py",
    "read_outputs.py",
    "access.py",
    "runtime_tuning.py",
    "rentals.py",
    "first_key.py",
    "cloud_machine.py",
)
CONFIG = [path for path in STACKS if path.name not in MADE]
# Sent to the cluster, never imported here.
ON_THE_NODES = {"all_reduce_perf_cpu.py": {"mpi4py", "numpy"}, "tcp_ring.py": {"numpy"}}


@cache
def imports(path: Path) -> set[str]:
    """Modules that a file imports, anywhere in it: `a.b` for `import a.b` and for `from a.b import c`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def name(path: Path) -> str:
    return str(path.relative_to(PROJECT))


def tops(path: Path) -> set[str]:
    return {module.split(".")[0] for module in imports(path)}


def test_the_rules_look_at_all_layers() -> None:
    assert {"step.py", "cluster.py", "role.py", "verdict.py"} <= {path.name for path in COMPONENTS}
    assert {"cluster.py", "reader.py", "kind.py", "machines.py"} <= {path.name for path in STACKS}
    assert len(PURE) > 8
    assert {"section.py", "settings.py", "cluster_settings.py"} <= {path.name for path in SETTINGS}
    assert {"reader.py", "kind.py", "model.py"} <= {path.name for path in CONFIG}


@pytest.mark.parametrize("path", [*COMPONENTS, *STACKS, PROJECT / "__main__.py"], ids=name)
def test_commands_on_machines_are_made_in_one_file_alone_and_so_are_copies(path: Path) -> None:
    told = path.read_text(encoding="utf-8")
    assert not re.search(r"\b((remote|kind)\.(Command|CopyToRemote|CopyFile)\(|pulumi_command\.remote\b)", told)
    assert "pulumi_command.remote" not in imports(path)
    assert ("command:remote:" in told) == (name(path) == "components/steps/command.py")
    asked = {each.rpartition(".")[2] for each in imports(path) if each.startswith("components.steps.command.")}
    makers = {"components/steps/step.py": "REMOTE", "components/steps/delivery.py": "COPY"}
    assert asked & {"REMOTE", "COPY"} == {makers.get(name(path))} - {None}


@pytest.mark.parametrize("path", [*COMPONENTS, *STACKS], ids=name)
def test_what_is_run_here_is_a_step_or_makes_a_machine_or_a_key(path: Path) -> None:
    makers = {
        "components/steps/step.py",
        "components/cluster/random_secret.py",
        "stacks/tailnet/network.py",
        "stacks/sites/rented/first_key.py",
        *(f"{kind.machines.replace('.', '/')}.py" for kind in KINDS.values()),
    }
    assert "local.Command(" not in path.read_text(encoding="utf-8") or name(path) in makers


@pytest.mark.parametrize("path", COMPONENTS, ids=name)
def test_a_component_knows_neither_stacks_nor_the_lab_nor_pulumis_config(path: Path) -> None:
    assert not tops(path) & {"stacks", "lab"}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        assert not (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "pulumi"
            and node.attr in ("Config", "get_stack", "get_project", "export", "StackReference")
        ), f"line {node.lineno}"
    assert not {"pulumi.Config", "pulumi.config", "pulumi.export"} & imports(path)


@pytest.mark.parametrize("path", PURE, ids=name)
def test_pure_parts_import_no_pulumi_and_no_component(path: Path) -> None:
    assert not tops(path) & {"pulumi", "pulumi_command"}
    own = {module for module in imports(path) if module.startswith("components.")}
    assert all(module.split(".")[1] in ("validation", "node") for module in own)


@pytest.mark.parametrize("path", [*CONFIG, *SETTINGS], ids=name)
def test_what_reads_the_config_imports_no_pulumi(path: Path) -> None:
    assert not tops(path) & {"pulumi", "pulumi_command"}


@pytest.mark.parametrize("path", SETTINGS, ids=name)
def test_settings_use_pydantic_and_the_words_of_slurm_and_no_component(path: Path) -> None:
    assert tops(path) - sys.stdlib_module_names <= {"components", "pydantic", "pydantic_core", "slurmutils"}
    own = {module for module in imports(path) if module.startswith("components.")}
    assert all(module.split(".")[1] in ("settings", "validation", "roles") for module in own)
    assert all(".settings" in module for module in own if module.startswith("components.roles"))


@pytest.mark.parametrize("path", PURE, ids=name)
def test_what_also_runs_on_the_head_node_needs_nothing_but_python(path: Path) -> None:
    assert tops(path) - sys.stdlib_module_names <= {"components"} | ON_THE_NODES.get(path.name, set())


@pytest.mark.parametrize("path", [path for path in COMPONENTS if path not in PURE + SETTINGS], ids=name)
def test_a_component_uses_other_components_pulumi_and_pythons_own_library(path: Path) -> None:
    # One file renders templates, and one holds a section of the config.
    own = {"render.py": {"jinja2"}, "role.py": {"pydantic"}}.get(path.name, set())
    # What runs on the head node by the Python that has MLflow.
    with_mlflow = {"accounts.py", "start.py", "storage.py"}
    own |= {"mlflow", "sqlalchemy", "uvicorn"} if path.parent.name == "mlflow" and path.name in with_mlflow else set()
    assert tops(path) - sys.stdlib_module_names - own <= {"components", "pulumi", "pulumi_command"}


@pytest.mark.parametrize("path", ROLES, ids=name)
def test_a_role_is_made_without_pulumi(path: Path) -> None:
    assert not tops(path) & {"pulumi", "pulumi_command"}


def test_a_kind_of_site_is_a_folder_with_model_checks_and_machines() -> None:
    for kind, site in KINDS.items():
        assert site.model.model_fields["kind"].annotation == Literal[kind]
    folders = {(PROJECT / kind.model.__module__.replace(".", "/")).parent for kind in KINDS.values()}
    # Kinds that rent by an HTTP API have their checks and machines from one base.
    made = {(PROJECT / kind.machines.replace(".", "/")).parent for kind in KINDS.values()}
    assert folders | made == {path.parent for path in (PROJECT / "stacks" / "sites").glob("*/__init__.py")}
    assert {folder.name for folder in made - folders} == {"rented"}
    for folder in folders:
        assert (folder / "model.py").is_file()
    for folder in made:
        assert {"model.py", "checks.py", "machines.py"} <= {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    "path",
    [
        *(path for path in STACKS if path.parent.parent.name != "sites"),
        *COMPONENTS,
        *sorted((PROJECT / "cli").rglob("*.py")),
    ],
    ids=name,
)
def test_nobody_asks_for_a_kind_of_site_by_its_name(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare):
            named = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
            assert not named & set(KINDS), f"line {node.lineno}"


@pytest.mark.parametrize("path", [*STACKS, *COMPONENTS], ids=name)
def test_nobody_imports_the_main_program_or_the_engine_and_driver_around_it(path: Path) -> None:
    assert not tops(path) & {"__main__", "engine", "cli"}


SCRIPTS = [
    path
    for path in (PROJECT / "components").rglob("*")
    if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts and path.suffix != ".csv"
]


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_no_script_takes_a_found_line_for_none_where_what_wrote_it_had_more_to_say(path: Path) -> None:
    # grep -q and others end at the first line; what writes on dies of it, and with pipefail the pipe has failed.
    ends = re.compile(r"(?<!\|)\|\s*(grep\s+-\w*q|head -n? ?1\b|awk '[^']*\bexit\s*}')")
    found = [line for line in path.read_text(encoding="utf-8").splitlines() if ends.search(line)]
    # One line that is there at once.
    assert [line for line in found if "sort -V" not in line and "<<<" not in line] == []
