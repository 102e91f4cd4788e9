"""Slurm's packages of one release, by distribution; they take many minutes to build, and nothing but Debian's mirror.

They are kept by kind of machine and source, for every checkout of this machine. `python -m tests.lab.slurm_packages
debian-12` builds those that are not there, beside other work.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from components.roles.role import FOLDER
from components.roles.slurm.settings_release import OLDEST
from components.steps.composition import Functions
from components.steps.header import header
from driver import lab_commands
from driver.workspace import PROJECT
from engine.locks import locked
from lab.debian import find_mirrors
from lab.identity import container_name, lab_id
from lab.profiles.machine import Like
from tests.lab.cluster import own_machine

RELEASE = "24.11.5"
SHA256 = "e1a5547edd212c38b5e3230a284133f777b32746551f094aaa81cc4af375e332"
# Debian's archive has the source, so nothing from elsewhere is needed.
SOURCE = f"{{mirror}}/pool/main/s/slurm-wlm/slurm-wlm_{RELEASE}.orig.tar.gz"
OF_RELEASE = f"{RELEASE}-1+tailrack1"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tailrack" / "slurm"
LIKES: dict[str, Like] = {"debian-12": "bookworm", "debian-13": ""}
LIMIT_S = 4000


def source() -> str:
    """Where the source comes from here."""
    return SOURCE.format(mirror=find_mirrors().main)


def settings() -> dict[str, str]:
    """What the config says of the release."""
    return {"release": RELEASE, "release_sha256": SHA256, "release_source": source()}


def kind_of(distribution: str) -> str:
    """The name of the packages of a distribution, such as debian-13, as the role has it."""
    recipe = re.search(r"^RECIPE=(\d+)$", (FOLDER / "slurm_release" / "kept.sh").read_text(encoding="utf-8"), re.M)
    assert recipe
    return f"{distribution}-amd64-{RELEASE}-{SHA256[:12]}-{recipe[1]}"


@contextmanager
def in_turn(distribution: str) -> Iterator[Path]:
    """The folder for a distribution's packages, there or not; who comes while another one builds them waits."""
    folder = CACHE / kind_of(distribution)
    with locked(CACHE / f"{folder.name}.lock"):
        yield folder


def packages(distribution: str) -> Path:
    """Return the folder with a distribution's packages, built if they are not there."""
    with in_turn(distribution) as folder:
        if not folder.is_dir():
            _build(distribution, folder)
    return folder


def lay_out(folder: Path, container: str, place: str) -> None:
    """Put packages into a folder of a machine that looks for them there."""
    target = f"{place}/{folder.name}"
    for words in (
        ["exec", container, "install", "-d", "-m", "0755", place],
        ["cp", str(folder), f"{container}:{target}"],
        ["exec", container, "chown", "-R", "root:root", target],
    ):
        subprocess.run(["docker", *words], check=True, capture_output=True)


def keep(built: str, folder: Path) -> None:
    """Copy packages from a machine (`container:path`), whole or not at all."""
    fresh = folder.parent / f"{folder.name}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    subprocess.run(["docker", "cp", built, str(fresh)], check=True, capture_output=True)
    fresh.rename(folder)


def _build(distribution: str, folder: Path) -> None:
    """Build packages on a machine of the lab, by the role's own functions."""
    lab = lab_id(PROJECT, f"on{distribution.replace('-', '')}")
    own_machine(lab, "builder", bare=True, like=LIKES[distribution])
    container = container_name(lab, "builder")
    values = {
        "HOST_NAME": "builder",
        "STEP_NAME": "build",
        "SLURM_RELEASE": RELEASE,
        "SLURM_RELEASE_SHA256": SHA256,
        "SLURM_RELEASE_OLDEST": OLDEST,
    }
    commands = f"""
mkdir -p /kept "$STATE_DIR" "$LOG_DIR"
keep_artifact "/kept/$(source_name)" "$SLURM_RELEASE_SHA256" {shlex.quote(source())} '' ''
build_release "/kept/$(source_name)" "/kept/$(release_kind)"
"""
    script = "\n".join([header(values), Functions(["slurm_release/build"]).text, commands])
    try:
        words = ["docker", "exec", container, "timeout", str(LIMIT_S), "bash", "-euo", "pipefail", "-c", script]
        built = subprocess.run(words, capture_output=True, text=True)
        assert built.returncode == 0, built.stdout[-4000:] + built.stderr[-4000:]
        keep(f"{container}:/kept/{folder.name}", folder)
    finally:
        lab_commands.clear_away(lab)


if __name__ == "__main__":
    lab_commands.have_docker()
    for name in sys.argv[1:]:
        packages(name)
