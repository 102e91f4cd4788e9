"""Time the preparation of a first `make up` on a machine with no caches, in sequence and in parallel.

Each part runs twice from cold, in separate folders: alone, one after the other, and then as make does it. The base
image is made with debootstrap even where a registry would answer. Prints seconds; nothing is judged.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import docker

from cli.pulumi.workspace import PROJECT
from lab import debian, images, programs
from lab.commands import run
from lab.distributions import USUAL

NOWHERE = {"GOCACHE": "cache", "GOMODCACHE": "modules"}


def python(folder: Path) -> None:
    """Install the packages of cli/setup.sh."""
    run([sys.executable, "-m", "venv", str(folder / "venv")])
    pip = [str(folder / "venv/bin/python"), "-m", "pip", "-q", "--no-cache-dir", "--disable-pip-version-check"]
    run([*pip, "install", "--require-hashes", "-r", str(PROJECT / "requirements.txt")])


def go(folder: Path) -> None:
    """Build Tailscale and the control server with empty caches."""
    os.environ.update({name: str(folder / place) for name, place in NOWHERE.items()})
    programs.build(folder / "go")


def debian_base(folder: Path) -> None:
    """Make a base system, and leave it there."""
    command = ["debootstrap", "--variant=minbase", USUAL.release, str(folder / "root"), debian.find_mirrors().main]
    run(command, root=True)


def packages(folder: Path) -> None:
    """Build the image's stages of packages, on the base image that is here, without Docker's cache."""
    client = docker.from_env(timeout=1200)
    mirrors = debian.find_mirrors()
    shutil.copy(images.IMAGE_FOLDER / "packages" / "Dockerfile", folder)
    (folder / "sources.list").write_text(mirrors.sources_list, encoding="utf-8")
    base = debian.ensure_base(client, mirrors, folder)
    client.images.build(path=str(folder), target="cluster", nocache=True, rm=True, buildargs={"BASE": base})
    client.close()


def timed(part: Callable[[Path], None]) -> float:
    """Run a part in a separate folder; return its seconds."""
    folder = Path(tempfile.mkdtemp(prefix=f"{part.__name__}-"))
    begun = time.monotonic()
    try:
        part(folder)
        return time.monotonic() - begun
    finally:
        if part is go:  # its modules are read-only
            subprocess.run(["go", "clean", "-modcache"], check=False)
            for name in NOWHERE:
                os.environ.pop(name, None)
        run(["rm", "-rf", str(folder)], root=True)


def as_make_does(parts: dict[str, float]) -> None:
    """Run everything from the start, with Python first and then the parts that Docker needs beside it."""
    with ThreadPoolExecutor(1) as aside:
        programs = aside.submit(timed, go)
        for part in (python, debian_base, packages):
            parts[part.__name__] = timed(part)
        parts[go.__name__] = programs.result()


def main() -> None:
    """Measure and print."""
    alone: dict[str, float] = {}
    for part in (python, go, debian_base, packages):
        alone[part.__name__] = timed(part)
        print(f"{part.__name__.replace('_', ' '):16} {alone[part.__name__]:7.1f} s alone", flush=True)
    beside: dict[str, float] = {}
    begun = time.monotonic()
    as_make_does(beside)
    wall = time.monotonic() - begun
    for name, seconds in alone.items():
        print(f"{name.replace('_', ' '):16} {beside[name]:7.1f} s beside the others, {seconds:.1f} s alone")
    print(f"{'all':16} {sum(alone.values()):7.1f} s in turn   {wall:7.1f} s as make does it")


if __name__ == "__main__":
    main()
