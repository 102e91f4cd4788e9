"""Folders that other accounts can write, and what scripts that root runs do there, read from the scripts.

Every command counts, with the paths that its variables may stand for (tests/unit/bash_commands.py).
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.unit.bash_commands import commands

PROJECT = Path(__file__).parents[2]

# Folders that a package, a unit or a role (folders.give) gives to an account, and the account; `*` is any one name. A
# test in tests/unit/project/test_root_paths.py finds what is missing here.
GIVEN = {
    "/var/lib/slurm/slurmctld": "slurm",
    "/var/lib/slurm/accounting": "slurm",
    "/var/lib/slurm/accounting.new": "slurm",
    "/var/log/slurm": "slurm",
    "/run/slurmctld": "slurm",
    "/run/slurmdbd": "slurm",
    "/run/tailrack-database": "slurm",
    "/var/lib/munge": "munge",
    "/var/log/munge": "munge",
    "/run/munge": "munge",
    "/var/lib/tailrack-mlflow": "tailrack-mlflow",
    "/run/tailrack-mlflow": "tailrack-mlflow",
    "$NFS_EXPORTS_PATH/mlflow": "tailrack-mlflow",
    "/var/lib/tailrack-job-reports": "tailrack-reports",
    "/var/spool/tailrack-job-reports": "slurm",
    "/var/lib/tailrack/images": "tailrack-images",
    "/var/lib/tailrack/slurm-build/root/made": "tailrack-build",
    "/var/lib/tailrack-prometheus": "DynamicUser",
    "/var/lib/tailrack-alertmanager": "DynamicUser",
    "/var/lib/tailrack-grafana": "DynamicUser",
    "/var/lib/private/*": "DynamicUser",
    "/run/tailrack-live": "DynamicUser",
    "/var/lib/prometheus": "prometheus",
    "/var/lib/mysql": "mysql",
    "/var/lib/nfs": "statd",
    "$NFS_EXPORTS_PATH/home/*": "users",
    "$NFS_EXPORTS_MOUNT/home/*": "users",
    "$NFS_EXPORTS_PATH/scratch/*": "users",
    "/home/*": "users",
    "/data/.tailrack-data/*": "tailrack-data",
}  # fmt: skip
# Folders that a package gives to an account and that root takes back (folders.take) before it works in them.
TAKEN = ("/var/lib/slurm", "/etc/munge")

# They read no file that they name: texts for people, questions about an entry, and values of variables.
SAYS = {"echo", "printf", "result", "for", "case", "local", "readonly", "return"}
ASKS = {"[", "[[", "test", "stat", "df"}
# The ways to work with an account's folder.
WAYS = {"as_user", "copy_as", "ask_owner"}
# They change or remove an entry of the folder above, which is root's, and follow nothing in it.
ENTRY = {"rm", "rmdir", "mv", "chown", "chmod", "set_aside"}


def name_of(path: Path) -> str:
    """A file by its path in its folder of `components`, or by its own name."""
    return str(path).replace(f"{PROJECT}/", "").removeprefix("components/").removeprefix("roles/")


# Bash that an account runs, and that ends at once if root runs it.
NOT_ROOTS = {"job_reports/templates/report-job": "slurmctld runs it as slurm (test_job_reports.py)"}


def scripts() -> dict[str, str]:
    """Bash that root runs on machines, by name."""
    found = [*(PROJECT / "components").rglob("*.sh"), *(PROJECT / "components").rglob("templates/*")]
    found += (PROJECT / "cli").rglob("*.sh")
    texts = {path: path.read_text(encoding="utf-8") for path in found}
    return {
        name_of(path): text
        for path, text in texts.items()
        if (path.suffix == ".sh" or text.startswith("#!/bin/bash")) and name_of(path) not in NOT_ROOTS
    }


@cache
def constants() -> Mapping[str, frozenset[str]]:
    """Values that any script gives a name in capitals."""
    found = defaultdict(set)
    for text in scripts().values():
        for name, value in _assignments(text):
            if name.isupper():
                found[name].add(value)
    return {name: frozenset(values) for name, values in found.items()}


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    for words in commands(text):
        for word in words:
            if found := re.fullmatch(r"(\w+)=(.+)", word, re.DOTALL):
                yield found[1], found[2]
        if words[0] == "for" and "in" in words:
            yield from ((words[1], value) for value in words[words.index("in") + 1 :])


class Paths:
    """The paths that words of one script may stand for."""

    def __init__(self, text: str) -> None:
        self._values = {name: set(values) for name, values in constants().items()}
        own = defaultdict(set)
        for name, value in _assignments(text):
            own[name].add(value)
        self._values |= own

    def of(self, word: str, depth: int = 6) -> set[str]:
        """Everything that a word may be. Variables without a known value stay as they are."""
        found = re.search(r"\$(?:(\w+)|\{(\w+)([^{}]*)\})", word)
        if not found or not depth:
            return {word.replace("//", "/")}
        name, change = found[1] or found[2], found[3] or ""
        values = self._values.get(name)
        before = word[: found.start()]
        rest = self.of(word[found.end() :], depth)
        if not values:
            return {f"{before}${name}{each}" for each in rest}
        made = {each for value in values for each in self.of(value, depth - 1) if len(each) < 300}
        if change == "%/*":
            made = {each.rpartition("/")[0] for each in made}
        elif change == "##*/":
            made = {each.rpartition("/")[2] for each in made}
        return {before + one + two for one, two in itertools.islice(itertools.product(sorted(made), sorted(rest)), 200)}


def _pattern(folder: str) -> str:
    return re.escape(folder).replace(r"\*", r"[^/]+")


def place(path: str) -> tuple[str, str] | None:
    """The account's folder that a path is, or is in, and what leads on from it."""
    for folder in GIVEN:
        if found := re.match(rf"{_pattern(folder)}(/.*)?$", path, re.DOTALL):
            return folder, (found[1] or "").strip("/")
    return None


def findings(text: str) -> Iterator[tuple[str, str]]:
    """Commands of a script that work by a path through an account's folder: command and folder."""
    paths = Paths(text)
    for words in commands(text):
        name = words[0]
        for at, word in enumerate(words[1:], 1):
            into = words[at - 1] in ("<", ">", ">>", "&>", "&>>", ">|")
            if not into and (name in SAYS | ASKS | WAYS or re.match(r"\w+\+?=", name)):
                continue
            for path in (each for part in re.split(r"[=:]", word) for each in paths.of(part)):
                if found := place(path):
                    folder, rest = found
                    recursive = name in ("chown", "chmod") and any(re.match("-[a-zA-Z]*R", each) for each in words)
                    if into or rest or name not in ENTRY or recursive:
                        yield name, folder
                for taken in TAKEN:
                    if path.startswith(f"{taken}/") and not place(path):
                        yield name, taken


def owners(text: str) -> Iterator[str]:
    """Commands of a script that give something to an account other than root."""
    for words in commands(text):
        name, rest = words[0], words[1:]
        if name in ("chown", "chgrp"):
            given = [word for word in rest if not word.startswith("-")][:1] != ["root:root"]
        elif name == "install":
            given = any(one in ("-o", "-g") and two != "root" for one, two in itertools.pairwise(rest))
        else:
            given = name == "setfacl"
        if given and rest:
            yield name


def units() -> dict[str, str]:
    """Texts that have a unit of systemd in them, by name."""
    found = [path for path in (PROJECT / "components").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    texts = {name_of(path): path.read_text(encoding="utf-8") for path in found}
    return {name: text for name, text in texts.items() if re.search(r"^\S*\[Service\]$", text, re.MULTILINE)}
