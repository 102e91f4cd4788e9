"""The base image: Debian trixie from a registry, or made here where none answers."""

import re
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from shutil import which

import docker
import requests
from docker.errors import DockerException, ImageNotFound

from lab.commands import apt_install, run
from lab.progress import say, timed

RELEASE = "trixie"
PUBLIC_IMAGE = f"debian:{RELEASE}-slim"
LOCAL_IMAGE = f"tailrack-lab-base:{RELEASE}"
REGISTRY_LIMIT_S = 10
"""A registry that says nothing for this long is taken as absent."""

DEFAULT_MIRROR = "http://deb.debian.org/debian"
DEFAULT_SECURITY_MIRROR = "http://deb.debian.org/debian-security"


@dataclass(frozen=True)
class Mirrors:
    """Where packages come from: base addresses of Debian's archive and of its security archive."""

    main: str = DEFAULT_MIRROR
    security: str = DEFAULT_SECURITY_MIRROR


def configured_uris(text: str) -> list[str]:
    """Return the archive addresses in an apt source file (one-line or deb822 format), in order, without comments."""
    uris: list[str] = []
    for line in text.splitlines():
        one_line = re.match(r"deb\s+(?:\[[^]]*\]\s+)?(\S+)", line.strip())
        field = re.match(r"URIs:\s*(.+)", line.strip(), re.IGNORECASE)
        uris += [one_line[1]] if one_line else field[1].split() if field else []
    return [uri.rstrip("/") for uri in uris]


def pick_mirrors(uris: list[str]) -> Mirrors:
    """Return the mirrors among `uris`: a Debian archive's path ends in /debian, the security one's in -security."""
    http = [uri for uri in uris if uri.startswith(("http://", "https://"))]
    return Mirrors(
        main=next((uri for uri in http if uri.endswith("/debian")), DEFAULT_MIRROR),
        security=next((uri for uri in http if uri.endswith("/debian-security")), DEFAULT_SECURITY_MIRROR),
    )


def host_mirrors(apt: Path = Path("/etc/apt")) -> Mirrors:
    """Return this machine's own Debian mirrors if it has any that hold the release, else Debian's."""
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*.list"))]
    files += sorted((apt / "sources.list.d").glob("*.sources"))
    mirrors = pick_mirrors([uri for file in files if file.is_file() for uri in configured_uris(file.read_text())])
    return Mirrors(
        main=mirrors.main if _holds(mirrors.main, RELEASE) else DEFAULT_MIRROR,
        security=mirrors.security if _holds(mirrors.security, f"{RELEASE}-security") else DEFAULT_SECURITY_MIRROR,
    )


def _holds(mirror: str, suite: str) -> bool:
    """Whether a mirror has a suite; a default one is not asked."""
    if mirror in {DEFAULT_MIRROR, DEFAULT_SECURITY_MIRROR}:
        return True
    request = urllib.request.Request(f"{mirror}/dists/{suite}/InRelease", method="HEAD")  # noqa: S310 - http(s) only
    try:
        with urllib.request.urlopen(request, timeout=10):  # noqa: S310
            return True
    except OSError:
        return False


def ensure_base(client: docker.DockerClient, mirrors: Mirrors, folder: Path) -> str:
    """Return the tag of a base image, pulled or else made with debootstrap in `folder` and imported.

    Raises LabError when debootstrap cannot be installed or fails.
    """
    for tag in (PUBLIC_IMAGE, LOCAL_IMAGE):
        try:
            client.images.get(tag)
        except ImageNotFound:
            continue
        return tag
    if _pull():
        return PUBLIC_IMAGE
    _debootstrap(client, mirrors, folder)
    return LOCAL_IMAGE


def _pull() -> bool:
    """Try to pull the public image, and give up when the registry is silent."""
    say(f"image: pull {PUBLIC_IMAGE}")
    impatient = docker.from_env(timeout=REGISTRY_LIMIT_S)
    try:
        impatient.images.pull(PUBLIC_IMAGE)
    except (DockerException, requests.RequestException):
        say("image: no registry answers")
        return False
    finally:
        impatient.close()
    return True


def _debootstrap(client: docker.DockerClient, mirrors: Mirrors, folder: Path) -> None:
    """Make the base image with debootstrap (installed if missing)."""
    if which("debootstrap") is None:
        say("image: debootstrap is missing; installing it")
        apt_install(["debootstrap", "debian-archive-keyring"])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="debootstrap-") as temporary:
        root, archive = Path(temporary) / "root", Path(temporary) / "root.tar"
        try:
            with timed(f"image: debootstrap {RELEASE} from {mirrors.main}"):
                keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
                run(
                    [
                        "debootstrap",
                        "--variant=minbase",
                        f"--keyring={keyring}",
                        RELEASE,
                        str(root),
                        mirrors.main,
                    ],
                    root=True,
                    hint=f"see {root}/debootstrap/debootstrap.log",
                )
            with timed(f"image: import {LOCAL_IMAGE}"):
                repository, tag = LOCAL_IMAGE.split(":")
                without = "--exclude=./var/cache/apt/archives/*.deb"
                run(["tar", "-C", str(root), "--numeric-owner", without, "-cf", str(archive), "."], root=True)
                client.api.import_image_from_file(str(archive), repository=repository, tag=tag)
                client.images.get(LOCAL_IMAGE)
        finally:
            run(["rm", "-rf", str(root), str(archive)], root=True)
