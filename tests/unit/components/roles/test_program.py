"""The program of hosts: its modules, its archive, its commands, and the launchers that roles install."""

import ast
import inspect
import io
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from components.node import pack
from components.node.commands import function_of
from components.node.install import FOLDER
from components.roles import program as packing
from components.roles.program import COMMANDS, launcher, program, python_launcher
from components.steps import composition
from components.validation import job_files

# Modules that only the job of a measurement or MLflow's own Python imports.
ELSEWHERE = {
    "components/validation/all_reduce_perf_cpu.py": {"mpi4py", "numpy"},
    "components/validation/tcp_ring.py": {"numpy"},
    "components/roles/jobs/mlflow/accounts.py": {"mlflow"},
    "components/roles/jobs/mlflow/start.py": {"mlflow", "sqlalchemy", "uvicorn"},
}

# Names of networks, which settings and hosts share.
ALSO = {"components.settings.network_names"}
ROOMS = ("node", "slurm_commands", "validation", "roles", "measurement_jobs")


def texts(archive: bytes) -> dict[str, str]:
    """The files of an archive."""
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        return {name: packed.read(name).decode() for name in packed.namelist()}


@cache
def modules() -> Mapping[str, str]:
    """The texts of the program's modules, by path. Those of a job's own Python are data."""
    found = texts(program().archive)
    return {path: text for path, text in found.items() if path.endswith(".py") and path not in job_files.FILES}


def test_the_archive_has_every_phase_of_every_role_and_a_step_finds_it() -> None:
    lists = (value for key, value in vars(composition).items() if key.isupper() and isinstance(value, tuple))
    undone = {undo: phase for phase, undos in composition._UNDO.items() for undo in undos}
    phases = {name for names in lists for name in names} | undone.keys()
    found, lost = set(), set()
    for folder in (packing._FOLDER / "components/roles").glob("*/*"):
        text = path.read_text(encoding="utf-8") if (path := folder / "role.py").is_file() else ""
        named = re.search(r"^        modules=\((.*)\),$", text, re.MULTILINE)
        own = re.findall(r"\w+", named[1]) if named else ["host"]
        for module in folder.glob("*.py"):
            for phase in re.findall(r"^def (\w+)\(step: Step", module.read_text(encoding="utf-8"), re.MULTILINE):
                if phase in phases:
                    found.add(str(module.relative_to(packing._FOLDER)))
                    if module.stem not in (*own, phase, undone.get(phase)):
                        lost.add(f"{folder.name}/{module.stem}.{phase}")
    assert len(found) > 40
    assert found - modules().keys() == set()
    assert lost == set()


def test_the_archive_is_the_same_bytes_twice() -> None:
    first = program()
    pack.files_of.cache_clear()
    packing.program.cache_clear()
    assert program() is not first
    assert (program(), program().digest) == (first, first.digest)


def test_the_data_that_modules_read_is_in_every_archive_of_them() -> None:
    archive = packing.step_program("components.roles.jobs.mlflow.start").archive
    assert "components/roles/jobs/mlflow/served_requests.txt" in texts(archive)


def test_modules_of_hosts_need_only_the_standard_library_of_python_3_10_and_each_other() -> None:
    offenders = {}
    for path, text in modules().items():
        imported = set()
        for node in ast.walk(ast.parse(text, path, feature_version=(3, 10))):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(str(node.module))
        own = {name for name in imported if name.split(".")[0] == "components"}
        packages = {name.split(".")[0] for name in imported - own} - sys.stdlib_module_names
        elsewhere = {name for name in own - ALSO if name.split(".")[1] not in ROOMS}
        files = {name: name.replace(".", "/") for name in own}
        missing = {name for name, file in files.items() if not {f"{file}.py", f"{file}/__init__.py"} & modules().keys()}
        if wrong := (packages - ELSEWHERE.get(path, set())) | elsewhere | missing:
            offenders[path] = wrong
    assert len(modules()) > 250
    assert offenders == {}


def test_the_main_of_every_command_takes_the_list_of_its_arguments() -> None:
    for module in sorted({*COMMANDS.values(), *job_files.COMMANDS.values()}):
        wanted = inspect.signature(function_of(module)).parameters.values()
        assert len([one for one in wanted if one.default is one.empty]) == 1, module


def test_every_command_can_be_imported_from_the_installed_program(installed: Path) -> None:
    modules = sorted({module.partition(":")[0] for module in COMMANDS.values()})
    # A command must not lean on what another one imported.
    code = f"""import importlib, sys
sys.path[:0] = [{str(installed / program().digest)!r}]
for module in {modules!r}:
    importlib.import_module(module)
    for name in [name for name in sys.modules if name.partition(".")[0] == "components"]:
        del sys.modules[name]
"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_launcher_runs_its_command_with_the_files_arguments_and_status(installed: Path, tmp_path: Path) -> None:
    path = tmp_path / "fabric.py"
    path.write_text(launcher("fabric").replace(FOLDER, str(installed)))
    path.chmod(0o755)
    done = subprocess.run([path, "no such word"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("fabric serve ")
    path.write_text(python_launcher("fabric").replace(FOLDER, str(installed)))
    again = subprocess.run([sys.executable, "-I", path, "no such word"], capture_output=True, text=True, check=False)
    assert (again.returncode, again.stderr) == (done.returncode, done.stderr)


def test_users_can_read_the_program_and_a_failure_names_its_line_of_the_module(installed: Path) -> None:
    folder = installed / program().digest
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in folder.rglob("*")}
    assert modes == {(True, 0o755), (False, 0o644)}
    call = "from components.validation.model import parse_size; parse_size('x')"
    code = f"import sys; sys.path[:0] = [{str(folder)!r}]; {call}"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert f'File "{folder}/components/validation/model.py", line ' in done.stderr


def test_the_program_for_jobs_is_made_alike_from_this_checkout_and_on_a_machine(installed: Path) -> None:
    folder = installed / program().digest
    code = (
        f"import sys; sys.path[:0] = [{str(folder)!r}]; from components.validation.job_files import *; "
        "sys.stdout.buffer.write(job_program())"
    )
    made = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, check=True).stdout
    assert made == job_files.job_program()
    assert not [path for path in texts(made) if path.startswith("components/roles")]


def test_the_program_for_jobs_runs_from_its_file_without_this_checkout(tmp_path: Path) -> None:
    path = tmp_path / job_files.PROGRAM
    path.write_bytes(job_files.job_program())
    environment = {**os.environ, "SLURMD_NODENAME": "a1"}
    words = [sys.executable, "-I", str(path), "fabric-facts"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("# tailrack there a1 {")
