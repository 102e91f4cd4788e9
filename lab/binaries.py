"""Tailscale's own programs and the lab's control server, built from the module in lab/control."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from lab.commands import run
from lab.errors import LabError
from lab.identity import CHECKOUT

MODULE = CHECKOUT / "lab" / "control"
TAILSCALE = "tailscale.com"
NO_GO = "install Go 1.26 or newer (https://go.dev/dl) and put it on PATH"
BUILD_ENV = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -trimpath"}


@dataclass(frozen=True)
class Binaries:
    """Where the files for the images lie on this machine."""

    tailscale: Path
    tailscaled: Path
    unit: Path
    defaults: Path
    control: Path


def sources() -> list[Path]:
    """Return the control server's source files, without its tests."""
    return sorted(file for file in MODULE.glob("*.go") if not file.name.endswith("_test.go"))


def build(folder: Path) -> Binaries:
    """Build, or take from `folder` if they are there, the programs; every module is checked against go.sum.

    `folder` is named after a digest of the sources by the caller. Raises LabError when Go is missing or a build fails.
    """
    built = Binaries(
        tailscale=folder / "tailscale",
        tailscaled=folder / "tailscaled",
        unit=folder / "tailscaled.service",
        defaults=folder / "tailscaled.defaults",
        control=folder / "control",
    )
    done = folder / "done"
    if done.exists():
        return built
    if shutil.which("go") is None:
        raise LabError(f"Go is missing, and the lab builds Tailscale with it; {NO_GO}")
    folder.mkdir(parents=True, exist_ok=True)
    # Into an empty module cache first; without its folder there is no unit file to copy.
    _go("mod", "download", TAILSCALE)
    version, source = _go("list", "-m", "-f", "{{.Version}}\t{{.Dir}}", TAILSCALE).strip().split("\t")
    stamp = version.removeprefix("v")
    flags = f"-s -w -X {TAILSCALE}/version.longStamp={stamp} -X {TAILSCALE}/version.shortStamp={stamp}"
    programs = [".", f"{TAILSCALE}/cmd/tailscale", f"{TAILSCALE}/cmd/tailscaled"]
    _go("build", "-ldflags", flags, "-o", f"{folder.resolve()}/", *programs)
    shutil.copyfile(Path(source) / "cmd/tailscaled/tailscaled.service", built.unit)
    shutil.copyfile(Path(source) / "cmd/tailscaled/tailscaled.defaults", built.defaults)
    done.touch()
    return built


def _go(*words: str) -> str:
    return run(["go", *words], env=BUILD_ENV, cwd=MODULE, hint=NO_GO)
