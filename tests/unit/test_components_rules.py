"""Rules that keep the layers apart."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
COMPONENTS = sorted((PROJECT / "components").rglob("*.py"))
STACKS = sorted((PROJECT / "stacks").rglob("*.py"))
PURE = [path for path in COMPONENTS if path.parent.name in ("config_files", "validation")]
ON_THE_NODES = "all_reduce_perf_cpu.py"  # sent to the cluster, never imported here
CLOUDS = re.compile(
    r"\b(aws|amazon|ec2|gcp|google|azure|lambda labs?|paperspace|runpod|coreweave|oracle|docker|lab)\b", re.IGNORECASE
)


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
    assert {"remote.py", "cluster.py", "slurm.py", "verdict.py"} <= {path.name for path in COMPONENTS}
    assert {"cluster.py", "config.py", "lab.py", "hosts.py"} <= {path.name for path in STACKS}
    assert len(PURE) > 8


@pytest.mark.parametrize("path", [*COMPONENTS, *STACKS, PROJECT / "__main__.py"], ids=name)
def test_remote_commands_are_made_in_one_file_alone(path: Path) -> None:
    told = path.read_text(encoding="utf-8")
    made = bool(re.search(r"\b(remote\.(Command|CopyToRemote|CopyFile)\(|pulumi_command\.remote\b)", told))
    imported = bool({"pulumi_command.remote"} & imports(path))
    assert (made or imported) == (name(path) == "components/remote.py")


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
    assert all(module.startswith(("components.config_files", "components.validation")) for module in own)


@pytest.mark.parametrize("path", [path for path in STACKS if path.name.startswith("config")], ids=name)
def test_the_stack_config_imports_no_pulumi(path: Path) -> None:
    assert not tops(path) & {"pulumi", "pulumi_command"}


@pytest.mark.parametrize("path", [path for path in COMPONENTS if path not in PURE], ids=name)
def test_a_component_uses_other_components_pulumi_and_pythons_own_library(path: Path) -> None:
    assert tops(path) - sys.stdlib_module_names <= {"components", "pulumi", "pulumi_command"}


@pytest.mark.parametrize("path", [*STACKS, *COMPONENTS], ids=name)
def test_nobody_imports_the_main_program_or_the_engine_and_driver_around_it(path: Path) -> None:
    assert not tops(path) & {"__main__", "engine", "driver"}


@pytest.mark.parametrize(
    "path",
    [
        *(path for path in COMPONENTS if path not in PURE and path.name != "__init__.py"),
        *(PROJECT / "components/config_files").rglob("*.j2"),
        *(PROJECT / "components/scripts").rglob("*.sh"),
    ],
    ids=name,
)
def test_a_component_names_no_cloud_and_no_lab(path: Path) -> None:
    found = [line for line in path.read_text(encoding="utf-8").splitlines() if CLOUDS.search(line)]
    assert found == []


@pytest.mark.parametrize("word", ["an EC2 machine", "in the lab", "Docker", "aws"])
def test_the_search_for_clouds_finds_them(word: str) -> None:
    assert CLOUDS.search(word)


def test_the_main_program_is_short() -> None:
    assert len((PROJECT / "__main__.py").read_text(encoding="utf-8").splitlines()) < 60
