"""The program on a machine of the lab: this checkout's working tree, this Python and its packages, copied there."""

import subprocess
import sys
import sysconfig
from pathlib import Path

from cli.pulumi.workspace import PROJECT

PLACE = "/srv/tailrack"
PYTHON = "/srv/python"
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
# What linters, tests and installers have there, and what is large and not the program's.
_LEFT_OUT = ["__pycache__", "numpy*", "mypy*", "*__mypyc*", "pip", "setuptools", "virtualenv", "hypothesis", "test"]
_ENVIRONMENT = {
    "PYTHONHOME": PYTHON,
    "LD_LIBRARY_PATH": f"{PYTHON}/lib",
    "PYTHONPATH": f"{PYTHON}/packages",
    "PYTHONDONTWRITEBYTECODE": "1",
}
PROGRAM = " ".join(["env", *(f"{name}={value}" for name, value in _ENVIRONMENT.items()), f"{PYTHON}/bin/{_VERSION}"])
"""How Python is started there, as words for a shell."""


def bring_program(container: str, owner: str) -> None:
    """Copy the program to a container, where it is one account's own."""
    tree = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, check=True).stdout
    _copy(container, PROJECT, ["--null", "-T", "-"], PLACE, given=tree)
    stdlib, packages = Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib"))
    without = ["site-packages", "dist-packages", "config-*", "*.a"]
    _copy(container, stdlib.parent, [*_excluded(without), stdlib.name], f"{PYTHON}/lib")
    _copy(container, packages, [*_excluded(), "."], f"{PYTHON}/packages")
    _copy(container, Path(sys.executable).resolve().parent, [_VERSION], f"{PYTHON}/bin")
    folder, library = Path(sysconfig.get_config_var("LIBDIR")), str(sysconfig.get_config_var("INSTSONAME"))
    if (folder / library).exists():
        _copy(container, folder, [library], f"{PYTHON}/lib")
    subprocess.run(["docker", "exec", container, "chown", "-R", owner, PLACE], check=True)


def _excluded(more: list[str] | None = None) -> list[str]:
    return [f"--exclude={name}" for name in [*_LEFT_OUT, *(more or [])]]


def _copy(container: str, folder: Path, words: list[str], place: str, given: bytes = b"") -> None:
    """Copy what tar takes of a folder to a place in the container."""
    subprocess.run(["docker", "exec", container, "mkdir", "-p", place], check=True)
    packed = subprocess.run(["tar", "-C", folder, "-c", *words], input=given, capture_output=True, check=True).stdout
    subprocess.run(["docker", "exec", "-i", container, "tar", "-C", place, "-x"], input=packed, check=True)
