"""Rules of the code that import-linter and ruff (pyproject.toml) cannot express. Each test lists all offenders."""

import ast
import re
import sys
from functools import cache
from pathlib import Path
from typing import Literal

from stacks.sites import KINDS

PROJECT = Path(__file__).parents[3]
COMPONENTS = sorted((PROJECT / "components").rglob("*.py"))
STACKS = sorted((PROJECT / "stacks").rglob("*.py"))
PRODUCT = [*COMPONENTS, *STACKS, *(PROJECT / "cli").rglob("*.py"), *(PROJECT / "lab").rglob("*.py")]
SETTINGS = [
    path for path in COMPONENTS if path.parent.name == "settings" or path.name in ("settings.py", "cluster_settings.py")
]
# Programs of jobs and of MLflow's own Python, and the one file that renders templates.
MORE_PACKAGES = {
    "components/settings/ssh_keys.py": {"cryptography"},
    "components/validation/all_reduce_perf_cpu.py": {"mpi4py", "numpy"},
    "components/validation/tcp_ring.py": {"numpy"},
    "components/roles/jobs/mlflow/accounts.py": {"mlflow"},
    "components/roles/jobs/mlflow/start.py": {"mlflow", "sqlalchemy", "uvicorn"},
}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> set[str]:
    """Modules that a file imports, anywhere in it."""
    modules = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module or "")
    return modules


def name(path: Path) -> str:
    return str(path.relative_to(PROJECT))


def test_one_file_makes_remote_commands_and_one_makes_copies() -> None:
    offenders = []
    for path in [*COMPONENTS, *STACKS, PROJECT / "__main__.py"]:
        text = path.read_text(encoding="utf-8")
        kinds = {
            alias.name
            for node in (ast.walk(tree(path)) if "components.steps.resource " in text else ())
            if isinstance(node, ast.ImportFrom) and node.module == "components.steps.resource"
            for alias in node.names
        }
        allowed = {"components/steps/step.py": {"REMOTE"}, "components/steps/delivery.py": {"COPY"}}
        if (
            re.search(r"\b((remote|kind)\.(Command|CopyToRemote|CopyFile)\(|pulumi_command\.remote\b)", text)
            or ("command:remote:" in text) != (name(path) == "components/steps/resource.py")
            or kinds & {"REMOTE", "COPY"} != allowed.get(name(path), set())
        ):
            offenders.append(name(path))
    assert offenders == []


def test_ages_by_the_wall_clock_are_bounded_on_both_sides() -> None:
    """A moment of a clock that was in a wrong year must not stop work until then: `within` (node/waiting.py)."""
    monotonic = {"components/validation/storage_node.py", "components/roles/jobs/job_reports/outbox.py"}
    offenders = []
    for path in PRODUCT:
        nodes = ast.walk(tree(path)) if re.search(r"\b(now|time\(\))\s+- ", path.read_text("utf-8")) else ()
        for node in (node for node in nodes if isinstance(node, ast.Compare)):
            sides = [side for side in [node.left, *node.comparators] if isinstance(side, ast.BinOp)]
            ages = [side for side in sides if isinstance(side.op, ast.Sub)]
            # `now - SECONDS` is a limit, not an age.
            begins = {ast.unparse(age.left) for age in ages if not ast.unparse(age.right).isupper()}
            if begins & {"now", "time.time()", "time()"} and name(path) not in monotonic:
                offenders.append(f"{name(path)}:{node.lineno}: {ast.unparse(node)}")
    assert offenders == []


def test_local_commands_are_steps_machines_or_secrets() -> None:
    makers = {
        "components/steps/step.py",
        "components/cluster/secrets.py",
        "stacks/tailnet/auth_keys.py",
        "stacks/sites/rented/first_key.py",
        *(f"{kind.machines.replace('.', '/')}.py" for kind in KINDS.values()),
    }
    assert {name(path) for path in [*COMPONENTS, *STACKS] if "local.Command(" in path.read_text("utf-8")} <= makers


def test_each_part_of_components_uses_only_its_own_packages() -> None:
    offenders = {}
    for path in COMPONENTS:
        allowed = {"components"} | MORE_PACKAGES.get(name(path), set())
        if path in SETTINGS:
            allowed |= {"pydantic", "pydantic_core", "slurmutils"}
        elif "validation" not in path.parent.parts:
            allowed |= {"pulumi", "pulumi_command"}
            allowed |= {"role.py": {"jinja2", "pydantic"}}.get(path.name, set())
        packages = {module.split(".")[0] for module in imports(path)}
        if more := packages - sys.stdlib_module_names - allowed:
            offenders[name(path)] = more
    assert offenders == {}


def test_settings_import_only_other_settings() -> None:
    offenders = {
        (name(path), module)
        for path in SETTINGS
        for module in imports(path)
        if module.startswith("components.")
        and not re.match(r"components\.(settings|validation)\b|components\.roles\..*\.(settings|versions)", module)
    }
    assert offenders == set()


def test_a_kind_of_site_is_a_folder_with_model_and_machines() -> None:
    for kind, site in KINDS.items():
        assert site.model.model_fields["kind"].annotation == Literal[kind]
    # A short model is in the package file.
    models = {Path(sys.modules[kind.model.__module__].__file__ or "").parent for kind in KINDS.values()}
    # Kinds that rent by an HTTP API share the machines of `rented`.
    machines = {(PROJECT / kind.machines.replace(".", "/")).parent for kind in KINDS.values()}
    assert models | machines == {path.parent for path in (PROJECT / "stacks" / "sites").glob("*/__init__.py")}
    assert {folder.name for folder in machines - models} == {"rented"}
    assert all((folder / file).is_file() for folder in machines for file in ("model.py", "machines.py"))


def test_no_code_outside_of_sites_compares_the_kind_of_a_site() -> None:
    offenders = []
    for path in (path for path in PRODUCT if path.parents[1] != PROJECT / "stacks/sites" and "lab" not in path.parts):
        written = any(f'"{kind}"' in path.read_text(encoding="utf-8") for kind in KINDS)
        for node in ast.walk(tree(path)) if written else ():
            if isinstance(node, ast.Compare):
                constants = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
                if constants & set(KINDS):
                    offenders.append(f"{name(path)}:{node.lineno}")
    assert offenders == []


def test_no_script_pipes_into_a_program_that_stops_reading() -> None:
    # grep -q and others end at the first line; the writer then dies of SIGPIPE, and with pipefail the pipe has failed.
    ends = re.compile(r"(?<!\|)\|\s*(grep\s+-\w*q|head -n? ?1\b|awk '[^']*\bexit\s*}')")
    offenders = []
    for path in sorted((PROJECT / "components").rglob("*")):
        if path.is_file() and path.suffix not in (".py", ".csv") and "__pycache__" not in path.parts:
            for line in path.read_text(encoding="utf-8").splitlines():
                if ends.search(line) and "sort -V" not in line and "<<<" not in line:  # one line, written at once
                    offenders.append(f"{name(path)}: {line}")
    assert offenders == []


def test_one_module_calls_the_commands_of_slurm() -> None:
    commands = re.compile(r'"(scontrol|squeue|sinfo|sacct|sacctmgr)",')
    offenders = {name(path) for path in COMPONENTS if commands.search(path.read_text(encoding="utf-8"))}
    assert offenders == {"components/slurm_commands/slurm.py"}


def test_comments_name_only_files_that_exist() -> None:
    others = [path for folder in ("bench", "examples", "package", "tests") for path in (PROJECT / folder).rglob("*.py")]
    names = {path.name for path in [*PRODUCT, *others]} | {"cc_ssh.py"}  # cloud-init's
    named = {(path, word) for path in PRODUCT for word in re.findall(r"(?<![/\w])\w+\.py\b", path.read_text("utf-8"))}
    assert {name(path): word for path, word in named if word not in names} == {}
