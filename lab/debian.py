"""The base images: Debian or Ubuntu from a registry, or made here where none answers."""

import os
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from shutil import which

import docker
import requests
from docker.errors import DockerException

from cli.file_lock import locked
from lab.commands import apt_install, run
from lab.distributions import USUAL, Distribution
from lab.docker_daemon import find
from lab.errors import LabError
from lab.progress import say, timed

# The ends of suites of security updates, which have a separate archive.
_SECURITY = ("-security", "/updates")


@dataclass(frozen=True)
class Mirrors:
    """Where packages of a distribution come from: base addresses of its archive, and of its security archive if any."""

    main: str
    security: str | None
    of: Distribution = USUAL

    @property
    def sources_list(self) -> str:
        """The lab's machines' own /etc/apt/sources.list."""
        release = self.of.release
        if self.of.testing:
            return f"deb [check-valid-until=no] {self.main} {release} {self.of.components}\n"
        places = [(self.main, release), (self.main, f"{release}-updates")]
        places += [(self.security, f"{release}-security")] if self.security else []
        return "".join(f"deb {uri} {suite} {self.of.components}\n" for uri, suite in places)


def find_mirrors(apt: Path = Path("/etc/apt"), setting: str | None = None, of: Distribution = USUAL) -> Mirrors:
    """Return the mirrors among this machine's own package sources that hold the release; `setting` comes first.

    setting   a mirror's address; by default from the environment. Raises LabError without a mirror.
    """
    sources = _sources(apt)
    main = (os.environ.get(of.setting, "") if setting is None else setting).rstrip("/")
    main = main or _first([uri for uri, suite in sources if not suite.endswith(_SECURITY)], of, of.release)
    if not main:
        raise LabError(
            f"none of this machine's package sources ({apt}) is a mirror of {of.vendor} with {of.release}, which such "
            f"machines of the lab are made of; name one: {of.setting}=URL"
        )
    # Ubuntu's are in its archive.
    updates = [uri for uri, suite in sources if suite.endswith(_SECURITY)]
    return Mirrors(main, _first([*updates, main], of, f"{of.release}-security") or None, of)


def _sources(apt: Path) -> list[tuple[str, str]]:
    """Return the address and suite of each package source on the web, as apt reads its folder."""
    words = ["--no-release-info", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"]
    rows = run(["apt-get", "-o", f"Dir::Etc={apt}", "indextargets", *words]).split("\n")
    pairs = (row.split(" ") for row in dict.fromkeys(rows) if row.startswith(("http://", "https://")))
    return [(uri.rstrip("/"), suite) for uri, suite in pairs]


def _first(uris: list[str], of: Distribution, suite: str) -> str:
    """Return the first address with a suite of the distribution's own, or an empty text. Others call theirs so too."""
    return next((uri for uri in dict.fromkeys(uris) if f"\nOrigin: {of.vendor}\n" in _release(uri, suite)), "")


def _release(mirror: str, suite: str) -> str:
    """Return the start of a suite's Release file on a mirror; empty if the mirror lacks the suite."""
    address = f"{mirror}/dists/{suite}/InRelease"
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 - http(s) only
            return str(answer.read(1000).decode(errors="replace"))
    except OSError:
        return ""


def ensure_base(client: docker.DockerClient, mirrors: Mirrors, folder: Path) -> str:
    """Return the tag of a base image, pulled or else made with debootstrap in `folder` and imported.

    Raises LabError when debootstrap cannot be installed or fails.
    """
    public, made_here = mirrors.of.image, f"tailrack-lab-base:{mirrors.of.release}"
    for tag in (public, made_here):
        if find(client.images, tag):
            return tag
    if _pull(public):
        return public
    _debootstrap(client, mirrors, made_here, folder)
    return made_here


def _pull(image: str) -> bool:
    """Try to pull a public image, and give up when the registry is silent."""
    say(f"image: pull {image}")
    impatient = docker.from_env(timeout=10)
    try:
        impatient.images.pull(image)
    except (DockerException, requests.RequestException):
        say("image: no registry answers")
        return False
    finally:
        impatient.close()
    return True


def ensure_installed(program: str, of: Distribution, folder: Path) -> None:
    """Install debootstrap or mmdebstrap and the archive keys if they are missing.

    One at a time, by a lock in the folder: several roots may be made at once. Raises LabError where apt-get fails.
    """
    package, keys = of.keyring
    with locked(folder / "debootstrap.lock"):
        missing = [] if which(program) else [program]
        missing += [] if Path(keys).exists() else [package]
        if missing:
            say(f"image: installing {' '.join(missing)}")
            apt_install(missing)


def _debootstrap(client: docker.DockerClient, mirrors: Mirrors, tag: str, folder: Path) -> None:
    """Make a base image with debootstrap (installed if missing)."""
    of = mirrors.of
    folder.mkdir(parents=True, exist_ok=True)
    ensure_installed("debootstrap", of, folder)
    with tempfile.TemporaryDirectory(dir=folder, prefix="debootstrap-") as temporary:
        root, archive = Path(temporary) / "root", Path(temporary) / "root.tar"
        try:
            with timed(f"image: debootstrap {of.release} from {mirrors.main}"):
                # Named, because a debootstrap that is older than the release has none of its name.
                script = f"/usr/share/debootstrap/scripts/{of.script}"
                components = f"--components={of.components.replace(' ', ',')}"
                options = ["--variant=minbase", f"--keyring={of.keyring[1]}", components]
                run(
                    ["debootstrap", *options, of.release, str(root), mirrors.main, script],
                    root=True,
                    hint=f"see {root}/debootstrap/debootstrap.log",
                )
            with timed(f"image: import {tag}"):
                repository, version = tag.split(":")
                without = "--exclude=./var/cache/apt/archives/*.deb"
                run(["tar", "-C", str(root), "--numeric-owner", without, "-cf", str(archive), "."], root=True)
                client.api.import_image_from_file(str(archive), repository=repository, tag=version)
                client.images.get(tag)
        finally:
            run(["rm", "-rf", str(root), str(archive)], root=True)
