"""Root works beside folders that other accounts can write, never by a path through one (components/node/files.py).

The tests read every command of every script that root runs on a machine, with the paths that its variables stand for.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.account_folders import PROJECT, TAKEN, Paths, findings, name_of, owners, place, scripts, units
from tests.unit.bash_commands import commands


def test_root_works_by_no_path_through_a_folder_that_another_account_can_write() -> None:
    found = {(path, *one) for path, text in scripts().items() for one in findings(text)}
    assert found == set(), "do it as the account (as_user), or by components/node/files.py"


# What looks as if it had been written without a thought, each in another way.
CARELESS = {
    "install -d -o slurm -g slurm -m 0700 /var/lib/slurm/slurmctld": "/var/lib/slurm/slurmctld",
    "chown -hR mlflow /var/lib/tailrack-mlflow": "/var/lib/tailrack-mlflow",
    "head -n 1 <\"/var/lib/slurm/slurmctld/clustername\"": "/var/lib/slurm/slurmctld",
    "look() {\n    local state=/var/lib/slurm/slurmctld\n    echo x >\"$state/x\"\n}": "/var/lib/slurm/slurmctld",
    "A=/var/lib/slurm\nB=$A/slurmctld\ntar -cf x -C \"$B\" .": "/var/lib/slurm/slurmctld",
    "F=/var/lib/slurm/slurmctld/job_state\ncp -a \"${F%/*}\" x": "/var/lib/slurm/slurmctld",
    "for f in /var/log/slurm/*.log; do tail \"$f\"; done": "/var/log/slurm",
    "before=$(cat /var/lib/slurm/slurmctld/clustername)": "/var/lib/slurm/slurmctld",
    "echo \"it is $(sed -n 1p /var/lib/slurm/slurmctld/clustername)\"": "/var/lib/slurm/slurmctld",
    "as_user slurm 9 9 cat x >/var/lib/slurm/slurmctld/y": "/var/lib/slurm/slurmctld",
    "cd /var/lib/slurm/slurmctld && rm x": "/var/lib/slurm/slurmctld",
    "dd if=/dev/zero of=/var/lib/tailrack-mlflow/x": "/var/lib/tailrack-mlflow",
    "mkdir -p \"$NFS_EXPORTS_PATH/home/$name/.ssh\"": "$NFS_EXPORTS_PATH/home/*",
    "rm -f /var/lib/slurm/x": "/var/lib/slurm",
}  # fmt: skip


@pytest.mark.parametrize("text", CARELESS)
def test_a_new_way_through_such_a_folder_is_found(text: str) -> None:
    assert CARELESS[text] in {folder for _, folder in findings(text)}


@pytest.mark.parametrize(
    "text",
    [
        "as_user slurm 9 9 cat /var/lib/slurm/slurmctld/x </dev/null >/var/lib/tailrack/x",
        "rm -rf /var/lib/slurm/accounting",
        "echo 'see /var/lib/slurm/slurmctld/x'  # cat /var/lib/slurm/slurmctld/x",
        "[ ! -e /var/lib/slurm/slurmctld/x ] || x=/var/lib/slurm/slurmctld",
    ],
)
def test_what_reaches_nothing_of_anothers_is_let_pass(text: str) -> None:
    assert [*findings(text)] == []


# Commands that give something to an account, and why it is nothing of another's. Python uses folders.give.
OWNERS = {
    ("health/templates/prolog-40-enroot", "chown"): "a folder that root has just made in a sticky one",
    ("health/templates/prolog-45-scratch", "chown"): "a folder that root has just made in its own",
}


def test_what_becomes_an_accounts_is_a_folder_of_its_own_or_named_here_with_a_reason() -> None:
    found = {(path, name) for path, text in scripts().items() for name in owners(text)}
    assert found == OWNERS.keys()


def test_every_folder_that_an_account_gets_is_known_to_these_tests() -> None:
    """Python gives folders with folders.give(ACCOUNT, MODE, PATH); a path that is computed has its own test."""
    found = set()
    for file in (PROJECT / "components").rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            name = getattr(getattr(call, "func", None), "attr", getattr(getattr(call, "func", None), "id", ""))
            if isinstance(call, ast.Call) and name == "give" and len(call.args) == 3:
                path = call.args[2]
                if isinstance(path, ast.Name) and path.id.lstrip("_").isupper():
                    found.add(getattr(_module(file), path.id))
    assert len(found) > 2
    assert [folder for folder in found if not place(folder)] == [], "add it to GIVEN"


def _module(file: Path) -> ModuleType:
    return importlib.import_module(".".join(file.relative_to(PROJECT).with_suffix("").parts))


def test_every_folder_that_a_unit_gives_to_its_account_is_known_to_these_tests() -> None:
    roots = {
        "StateDirectory": "/var/lib",
        "CacheDirectory": "/var/cache",
        "LogsDirectory": "/var/log",
        "RuntimeDirectory": "/run",
    }
    assert len(units()) > 20
    for path, text in units().items():
        if re.search(r"^(User=(?!root)|DynamicUser=yes)", text, re.MULTILINE):
            for kind, names in re.findall(r"^(\w+Directory)=(.+)$", text, re.MULTILINE):
                for name in names.split() if kind in roots else ():
                    assert place(f"{roots[kind]}/{name}"), f"{path}: add {roots[kind]}/{name} to GIVEN"


# Programs of root's that a unit of an account starts as root, to drop to an account whatever the unit's own is.
DROPS = re.compile(r"^Exec\w+=-?\+/usr/sbin/runuser -u slurm -- /usr/local/sbin/tailrack-slurm-room \w+$", re.MULTILINE)


def test_no_unit_of_an_account_runs_a_command_of_its_own_as_root() -> None:
    for path, text in units().items():
        assert not re.search(r"^Exec\w+=[@:|-]*[+!]", DROPS.sub("", text), re.MULTILINE), path


# Accounts under which something runs, and what tells whose they are.
ACCOUNTS = {
    "slurm", "prometheus", "tailrack-data", "tailrack-mlflow", "tailrack-images", "tailrack-build",
    "tailrack-reports",
}  # fmt: skip


def test_there_is_no_account_whose_folders_nobody_has_looked_for() -> None:
    found = set(re.findall(r"^User=(\S+)$", "\n".join(units().values()), re.MULTILINE))
    for text in scripts().values():
        paths = Paths(text)
        found |= {each for words in commands(text) if words[0] == "useradd" for each in paths.of(words[-1])}
    assert found | set(made_in_python()) == ACCOUNTS, "name its folders in GIVEN"


def made_in_python() -> Iterator[str]:
    """Yield the accounts that Python makes, with the constant that names each as the last word of `useradd`."""
    for file in (PROJECT / "components").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)):
                continue
            name = node.args[-1]
            # Users' accounts have no constant.
            if node.args[0].value == "useradd" and isinstance(name, ast.Name) and name.id.lstrip("_").isupper():
                yield getattr(_module(file), name.id)


# Python that names such a folder, and why root follows nothing there.
PYTHON = {
    "accounting/paths.py": "gives the folder to its account, lists it as that account, and renames or removes it whole",
    "monitoring/leave.py": "removes it by descriptor, when the daemon is gone",
    "grafana/leave.py": "removes it by descriptor, when the daemon is gone",
    "machine/leave.py": "asks which folders exist, and opens none",
    "monitoring/figures.py": "asks how full the disk of the folder is, and opens nothing",
    "mlflow/paths.py": "gives the folder to its account, or makes root its owner, by descriptor",
    "mlflow/start.py": "runs as MLflow's account",
    "mlflow/accounts.py": "runs as MLflow's account",
    "job_reports/paths.py": "makes and removes the folders by descriptor; the service reads them as its account",
    "slurm/room.py": "runs as slurm; root's `accept` renames a file as slurm",
    "slurm/folder.py": "makes root its owner, by descriptor",
    "slurm/head.py": "gives Slurm's account its folder of logs, by descriptor",
    "slurm/role.py": "names what is saved; the backup reads it as slurm",
    "munge/keys.py": "gives the folder to root first (take_folder)",
    "munge/join.py": "reads munged's log as munge",
    "munge/role.py": "names what is saved; the backup reads it as the folder's owner",
    "pod/saved.py": "makes root the folder's owner first, by descriptor",
    "sll/watch.py": "runs as whoever watches, and takes the file for data",
}


def test_no_other_python_names_a_path_in_such_a_folder() -> None:
    found = set()
    for file in (PROJECT / "components").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and " " not in text and (place(text) or text.startswith(TAKEN)):
                found.add(name_of(file))
    assert found <= PYTHON.keys()
