"""Slurm's packages of one release, by distribution; they take many minutes to build, and nothing but Debian's mirror.

They are kept by what decides them (kind of machine, source, the script that builds), for every checkout here.
`python -m tests.lab.slurm_packages debian-12` builds those that are not there, beside other work.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli import lab_commands
from cli.file_lock import locked
from cli.pulumi.workspace import PROJECT
from components.roles.program import program
from components.roles.role import Value, folder_of
from components.roles.slurm.slurm_release.release import RECIPE
from components.steps.command_line import render_request, render_whole, whole_command
from components.steps.composition import Script
from lab import docker_daemon
from lab.debian import find_mirrors
from lab.identity import container_name, lab_id
from lab.profiles.machine import Like
from tests.lab.cluster import own_machine

RELEASE = "24.11.5"
SHA256 = "e1a5547edd212c38b5e3230a284133f777b32746551f094aaa81cc4af375e332"
# Debian's archive has the source, so nothing from elsewhere is needed.
SOURCE = f"{{mirror}}/pool/main/s/slurm-wlm/slurm-wlm_{RELEASE}.orig.tar.gz"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tailrack" / "slurm"
LIKES: dict[str, Like] = {"debian-12": "bookworm", "debian-13": ""}
LIMIT_S = 4000
OF_RELEASE = f"{RELEASE}-1+tailrack{RECIPE}"
# What else decides what comes of a build.
BUILT_BY = hashlib.sha256((folder_of("slurm_release") / "build.py").read_bytes()).hexdigest()[:12]


def source() -> str:
    """Where the source comes from here."""
    return SOURCE.format(mirror=find_mirrors().main)


def settings() -> dict[str, str]:
    """What the config says of the release."""
    return {"release": RELEASE, "release_sha256": SHA256, "release_source": source()}


def kind_of(distribution: str) -> str:
    """The name of the packages of a distribution, such as debian-13, as the role has it."""
    return f"{distribution}-amd64-{RELEASE}-{SHA256[:12]}-{RECIPE}"


@contextmanager
def in_turn(distribution: str) -> Iterator[Path]:
    """The folder for a distribution's packages, there or not; who comes while another one builds them waits."""
    folder = CACHE / f"{kind_of(distribution)}-{BUILT_BY}"
    with locked(CACHE / f"{folder.name}.lock"):
        yield folder


def packages(distribution: str) -> Path:
    """Return the folder with a distribution's packages, built if they are not there."""
    with in_turn(distribution) as folder:
        if not folder.is_dir():
            _build(distribution, folder)
    return folder


def lay_out(distribution: str, container: str, place: str) -> None:
    """Put packages that are kept into a folder of a machine that looks for them there."""
    folder, target = CACHE / f"{kind_of(distribution)}-{BUILT_BY}", f"{place}/{kind_of(distribution)}"
    for words in (
        ["exec", container, "install", "-d", "-m", "0755", place],
        ["cp", str(folder), f"{container}:{target}"],
        ["exec", container, "chown", "-R", "root:root", target],
    ):
        subprocess.run(["docker", *words], check=True, capture_output=True)


def lay_out_ready(place: Path) -> str | None:
    """Make a folder of ready packages, as docs/day-2.md has it, of all that are kept; None where one is not.

    Returns the SHA-256 of its list.
    """
    lines = []
    for distribution in sorted(LIKES):
        folder = CACHE / f"{kind_of(distribution)}-{BUILT_BY}"
        if not folder.is_dir():
            return None
        kind = place / f"{distribution}-amd64"
        kind.mkdir(parents=True)
        for package in sorted(folder.glob("*.deb")):
            shutil.copyfile(package, kind / package.name)
            lines.append(f"{hashlib.sha256(package.read_bytes()).hexdigest()}  {kind.name}/{package.name}\n")
    of_all = "".join(lines).encode()
    (place / "SHA256SUMS").write_bytes(of_all)
    return hashlib.sha256(of_all).hexdigest()


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
    values: dict[str, Value] = {
        "slurm_release": RELEASE,
        "slurm_release_sha256": SHA256,
        "slurm_release_packages": "",
        "slurm_release_packages_sha256": "",
        "slurm_release_from": source(),
        "share_path": "/kept",
        "head_computes": False,
        "accounting_enabled": False,
    }
    step = Script({"up": (("python", "components.roles.slurm.slurm_release.host", "provide"),)}, frozenset(values))
    stdin = render_whole(program(), step, render_request("build", "builder", "tailrack", "", values))
    install = "apt-get -qq update && apt-get -qqy install --no-install-recommends python3 procps curl ca-certificates"
    try:
        enter = ["docker", "exec", "-i", container]
        subprocess.run([*enter, "sh", "-c", install], capture_output=True, check=True)
        words = [*enter, "sh", "-c", whole_command("root", "up", LIMIT_S)]
        built = subprocess.run(words, input=stdin, capture_output=True, text=True)
        assert built.returncode == 0, built.stdout[-4000:] + built.stderr[-4000:]
        keep(f"{container}:/kept/slurm/{kind_of(distribution)}", folder)
    finally:
        lab_commands.clear_away(lab)


if __name__ == "__main__":
    docker_daemon.ensure_daemon()
    for name in sys.argv[1:]:
        packages(name)
