"""The packages of role mlflow as files, fetched by this machine: the lab's head node reaches no package index."""

import re
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement

from cli.pulumi.workspace import ROOT
from components.roles.role import folder_of

FOLDER = ROOT / "cache" / "mlflow-wheels"
LIST = folder_of("mlflow") / "lock" / "requirements.txt"
# Of the lab's machines, Debian 13.
PYTHON = "3.13"
SYSTEMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux_2_5_x86_64")


def mlflow_wheels() -> Path:
    """Return a folder with the wheels, each held against its digest by pip."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = FOLDER / "requirements.txt"
    # pip asks its own Python about the conditions, not the one that it fetches for.
    text = "".join(line for line in _lines() if line)
    if not wanted.exists() or wanted.read_text(encoding="utf-8") != text:
        fresh = FOLDER / "requirements.new"
        fresh.write_text(text, encoding="utf-8")
        words = [
            "download",
            "-q",
            "--no-deps",
            "--require-hashes",
            "--only-binary",
            ":all:",
            "--python-version",
            PYTHON,
        ]
        systems = [word for system in SYSTEMS for word in ("--platform", system)]
        there = ["-r", str(fresh), "-d", str(FOLDER), "--find-links", str(FOLDER)]
        made_for = ["--python-version", PYTHON, *systems]
        subprocess.run([sys.executable, "-m", "pip", *words, *made_for, *there], check=True)
        fresh.replace(wanted)
    return FOLDER


def _lines() -> list[str]:
    """The pins of this Python with their digests, and without conditions."""
    environment = {"python_full_version": f"{PYTHON}.0", "python_version": PYTHON}
    found = []
    for block in re.split(r"\n(?=\S)", LIST.read_text(encoding="utf-8").strip()):
        pinned, *digests = block.split(" \\\n")
        if pinned.startswith("#"):
            continue
        need = Requirement(pinned)
        if need.marker is None or need.marker.evaluate(environment):
            found.append(" \\\n".join([f"{need.name}{need.specifier}", *digests]) + "\n")
    return found
