"""Tailscale's own programs and the lab's control server, built from the module in lab/control.

`python3 -m lab.programs` builds them ahead of need: it takes minutes the first time, and nothing but Python itself.
"""

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

from cli.file_lock import locked
from lab.commands import run
from lab.errors import LabError
from lab.identity import CHECKOUT
from lab.progress import timed

CACHE = CHECKOUT / ".tailrack" / "cache"
"""Default folder for built programs; the images themselves are the real cache."""

MODULE = CHECKOUT / "lab" / "control"
TAILSCALE = "tailscale.com"
TAILSCALE_FILES = ("tailscale", "tailscaled", "tailscaled.service", "tailscaled.defaults")
NO_GO = "install Go 1.26 or newer (https://go.dev/dl) and put it on PATH"
# More memory a compiler, 400 MB at most, for a tenth of its time.
BUILD_ENV = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -trimpath", "GOGC": "400"}
# The linker leaves the debuggers' tables out (-s -w), so they need not be made either: a fifth of the compilers' time.
NO_TABLES = "all=-dwarf=false"

# Tailscale's own switches (feature/featuretags of the module). Features that neither a cluster nor its tests use take
# more than a third of a first build's time. Networking, relays and logging in stay.
LEFT_OUT = (
    *("acme", "appconnectors", "aws", "bird", "captiveportal", "capture", "clientupdate", "completion", "conn25"),
    *("debugportmapper", "doctor", "drive", "flashappliance", "identityfederation", "kube", "netlog", "portlist"),
    *("posture", "qrcodes", "remoteconfig", "routecheck", "serve", "serviceclientprefs", "ssh", "synology"),
    *("syspolicy", "systray", "taildrop", "tailnetlock", "tap", "tpm", "wakeonlan", "webclient"),
)


def digest(files: Iterable[Path], *texts: str) -> str:
    """Return 12 hex digits over the names and contents of `files` and over `texts`."""
    total, by_name = hashlib.sha256(), sorted(files, key=lambda file: file.name)
    for part in [piece for file in by_name for piece in (file.name.encode(), file.read_bytes())]:
        total.update(len(part).to_bytes(8, "big") + part)
    for text in texts:
        total.update(len(text).to_bytes(8, "big") + text.encode())
    return total.hexdigest()[:12]


def sources() -> list[Path]:
    """Return the control server's source files, without its tests."""
    return sorted(file for file in MODULE.glob("*.go") if not file.name.endswith("_test.go"))


def ready() -> Path:
    """Return the folder with the programs, built if they are not there; wait for another process that builds them."""
    files = [*sources(), MODULE / "go.mod", MODULE / "go.sum", Path(__file__)]
    folder = CACHE / f"go-{digest(files)}"
    with locked(CACHE / "go.lock"):
        if not (folder / "done").exists():
            with timed("image: build tailscale, tailscaled and the control server with Go (minutes the first time)"):
                build(folder)
                (folder / "done").touch()
    return folder


def build(folder: Path) -> None:
    """Build `control` and TAILSCALE_FILES in a folder; every module is checked against go.sum.

    Raises LabError when Go is missing or a build fails.
    """
    if shutil.which("go") is None:
        raise LabError(f"Go is missing, and the lab builds Tailscale with it; {NO_GO}")
    folder.mkdir(parents=True, exist_ok=True)
    # Into an empty module cache first; without its folder there is no unit file to copy.
    _go("mod", "download", TAILSCALE)
    version, source = _go("list", "-m", "-f", "{{.Version}}\t{{.Dir}}", TAILSCALE).strip().split("\t")
    stamp = version.removeprefix("v")
    flags = f"-s -w -X {TAILSCALE}/version.longStamp={stamp} -X {TAILSCALE}/version.shortStamp={stamp}"
    programs = [".", f"{TAILSCALE}/cmd/tailscale", f"{TAILSCALE}/cmd/tailscaled"]
    tags = ",".join(f"ts_omit_{feature}" for feature in LEFT_OUT)
    _go("build", "-tags", tags, "-gcflags", NO_TABLES, "-ldflags", flags, "-o", f"{folder.resolve()}/", *programs)
    for name in TAILSCALE_FILES[2:]:
        shutil.copyfile(Path(source) / "cmd/tailscaled" / name, folder / name)


def _go(*arguments: str) -> str:
    return run(["go", *arguments], env=BUILD_ENV, cwd=MODULE, hint=NO_GO)


if __name__ == "__main__":
    ready()
