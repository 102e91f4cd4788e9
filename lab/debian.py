"""The base image: Debian trixie from a registry, or made here where none answers."""

import os
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from shutil import which

import docker
import requests
from docker.errors import DockerException, ImageNotFound

from lab.commands import apt_install, run
from lab.errors import LabError
from lab.package_sources import read_folder
from lab.progress import say, timed

RELEASE = "trixie"
PUBLIC_IMAGE = f"debian:{RELEASE}-slim"
LOCAL_IMAGE = f"tailrack-lab-base:{RELEASE}"
REGISTRY_LIMIT_S = 10
"""A registry that says nothing for this long is taken as absent."""

MIRROR_SETTING = "TAILRACK_MIRROR"
ANSWER_LIMIT_S = 10


@dataclass(frozen=True)
class Mirrors:
    """Where packages come from: base addresses of Debian's archive, and of its security archive where there is one."""

    main: str
    security: str | None

    @property
    def sources_list(self) -> str:
        """The lab's machines' own /etc/apt/sources.list."""
        places = [(self.main, RELEASE), (self.main, f"{RELEASE}-updates")]
        places += [(self.security, f"{RELEASE}-security")] if self.security else []
        return "".join(f"deb {uri} {suite} main\n" for uri, suite in places)


def find_mirrors(apt: Path = Path("/etc/apt"), setting: str | None = None) -> Mirrors:
    """Return the mirrors among this machine's own package sources that hold the release; `setting` comes first.

    setting   value of TAILRACK_MIRROR; by default what the environment says. Raises LabError where there is no mirror.
    """
    sources = read_folder(apt)
    main = (os.environ.get(MIRROR_SETTING, "") if setting is None else setting).rstrip("/")
    main = main or _first([source.uri for source in sources if not source.security], RELEASE)
    if not main:
        raise LabError(
            f"none of this machine's package sources ({apt}) is a Debian mirror with {RELEASE}, which the lab's "
            f"machines are made of; name one: {MIRROR_SETTING}=URL"
        )
    security = _first([source.uri for source in sources if source.security], f"{RELEASE}-security")
    return Mirrors(main, security or None)


def _first(uris: list[str], suite: str) -> str:
    """Return the first address with Debian's own suite, or an empty text. Others have suites of that name too."""
    return next((uri for uri in dict.fromkeys(uris) if "\nOrigin: Debian\n" in _release(uri, suite)), "")


def _release(mirror: str, suite: str) -> str:
    """Return the beginning of what a mirror says of a suite; empty where it does not have it."""
    address = f"{mirror}/dists/{suite}/InRelease"
    try:
        with urllib.request.urlopen(address, timeout=ANSWER_LIMIT_S) as answer:  # noqa: S310 - http(s) only
            return str(answer.read(1000).decode(errors="replace"))
    except OSError:
        return ""


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
