"""The lab's images, named after a digest of what goes into them."""

import shutil
import tempfile
import zipapp
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import BuildError, ImageNotFound

from engine.locks import locked
from lab import binaries, debian
from lab.binaries import digest
from lab.errors import LabError
from lab.identity import CHECKOUT
from lab.profiles import machine
from lab.progress import timed

IMAGE_FOLDER = CHECKOUT / "lab" / "image"
NFS_MOUNT = CHECKOUT / "lab" / "nfs_mount"
CONTROL_DOCKERFILE = 'FROM scratch\nCOPY control /control\nENTRYPOINT ["/control"]\n'


@dataclass(frozen=True)
class Images:
    """Tags of the lab's images."""

    node: str
    bare: str
    control: str
    profiles: Mapping[str, str]

    def of_machine(self, like: machine.Like, *, bare: bool) -> str:
        """Return the tag of the image of a machine."""
        return self.profiles[like] if like else self.bare if bare else self.node


def tags() -> Images:
    """Return the tags that this checkout's sources give, whether or not the images are there."""
    versions = [binaries.MODULE / "go.mod", binaries.MODULE / "go.sum"]
    files = [*(file for file in IMAGE_FOLDER.iterdir() if file.is_file()), *NFS_MOUNT.glob("*.py")]
    node = digest(files + versions, debian.RELEASE)
    server = digest([*binaries.sources(), *versions], CONTROL_DOCKERFILE)
    return Images(
        node=f"tailrack-lab-node:{node}",
        bare=f"tailrack-lab-node-bare:{node}",
        control=f"tailrack-lab-control:{server}",
        profiles={
            like: f"tailrack-lab-node-{like}:{digest(_profile_files(like), node, *_profile_arguments().values())}"
            for like in machine.PROFILES
        },
    )


def _profile_files(like: str) -> list[Path]:
    return [machine.FOLDER / "boot.sh", *(machine.FOLDER / like).iterdir()]


def _profile_arguments() -> dict[str, str]:
    return {"CLASHING_UID": str(machine.CLASHING_UID), "CLASHING_USER": machine.CLASHING_USER}


def ensure_images(client: docker.DockerClient, wanted: Iterable[str], cache: Path = binaries.CACHE) -> None:
    """Build those of the `wanted` tags (of `tags()`) that are not there, and what they are built on.

    Raises LabError when a program or an image does not build.
    """
    known = tags()
    with locked(cache / "image.lock"):
        missing = [tag for tag in dict.fromkeys(wanted) if not _exists(client, tag)]
        layers = [tag for tag in missing if tag in known.profiles.values()]
        first = [tag for tag in missing if tag not in layers]
        if layers and known.bare not in first and not _exists(client, known.bare):
            first.append(known.bare)
        if first:
            _build_first(client, first, known, cache)
        for tag in layers:
            _build_profile(client, tag, known, cache)


def _build_first(client: docker.DockerClient, wanted: list[str], known: Images, cache: Path) -> None:
    """Build images that stand on none of the lab's. Go and Debian's packages have nothing to do with each other."""
    with ThreadPoolExecutor(1) as aside:
        programs = aside.submit(binaries.ready, cache)
        packages = install_packages(client, cache) if set(wanted) != {known.control} else None
        built = programs.result()
    for tag in wanted:
        if packages is None or tag == known.control:
            _build_control(client, tag, built, cache)
        else:
            _build_node(client, tag, "system" if tag == known.bare else "cluster", packages, built, cache)


def _exists(client: docker.DockerClient, tag: str) -> bool:
    try:
        client.images.get(tag)
    except ImageNotFound:
        return False
    return True


def _build_control(client: docker.DockerClient, tag: str, built: binaries.Binaries, cache: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache, prefix="control-") as context:
        shutil.copy(built.control, Path(context) / "control")
        (Path(context) / "Dockerfile").write_text(CONTROL_DOCKERFILE)
        _build(client, tag, Path(context))


def write_nfs_mount(program: Path) -> None:
    """Write the NFS mount helper as the one file that it is on a machine: its package, in an archive Python runs."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(NFS_MOUNT, Path(folder) / "nfs_mount", ignore=shutil.ignore_patterns("__pycache__"))
        zipapp.create_archive(folder, program, "/usr/bin/python3", "nfs_mount.program:main")


@dataclass(frozen=True)
class Packages:
    """What the packages of machines come from: the base image, and their sources.list."""

    base: str
    sources: str


def install_packages(client: docker.DockerClient, cache: Path) -> Packages:
    """Build the stages of the Dockerfile that are packages alone; Docker keeps them for the images that follow."""
    mirrors = debian.find_mirrors()
    packages = Packages(debian.ensure_base(client, mirrors, cache), mirrors.sources_list)
    with tempfile.TemporaryDirectory(dir=cache, prefix="packages-") as context:
        shutil.copy(IMAGE_FOLDER / "Dockerfile", context)
        (Path(context) / "sources.list").write_text(packages.sources, encoding="utf-8")
        _build(client, "", Path(context), "cluster", {"BASE": packages.base})
    return packages


def _build_node(
    client: docker.DockerClient, tag: str, stage: str, packages: Packages, built: binaries.Binaries, cache: Path
) -> None:
    with tempfile.TemporaryDirectory(dir=cache, prefix="node-") as context:
        for file in IMAGE_FOLDER.iterdir():
            if file.is_file():
                shutil.copy(file, context)
        write_nfs_mount(Path(context) / "mount.nfs4")
        for file in (built.tailscale, built.tailscaled, built.unit, built.defaults):
            shutil.copy(file, context)
        (Path(context) / "sources.list").write_text(packages.sources, encoding="utf-8")
        _build(client, tag, Path(context), "machine", {"BASE": packages.base, "PACKAGES": stage})


def _build_profile(client: docker.DockerClient, tag: str, known: Images, cache: Path) -> None:
    like = next(like for like, layer in known.profiles.items() if layer == tag)
    with tempfile.TemporaryDirectory(dir=cache, prefix=f"{like}-") as context:
        for file in _profile_files(like):
            shutil.copy(file, context)
        _build(client, tag, Path(context), arguments={"BASE": known.bare, **_profile_arguments()})


def _build(
    client: docker.DockerClient,
    tag: str,
    context: Path,
    target: str = "",
    arguments: dict[str, str] | None = None,
) -> None:
    """Build one image, or a stage without a tag, saying so."""
    with timed(f"image: build {tag or target}"):
        try:
            client.images.build(
                path=str(context),
                tag=tag or None,
                target=target or None,
                buildargs=arguments or {},
                rm=True,
                forcerm=True,
            )
        except BuildError as error:
            lines = [str(entry.get("stream", "")).strip() for entry in error.build_log]
            tail = " | ".join(line for line in lines[-8:] if line)
            raise LabError(
                f"image {tag or target} does not build: {error.msg}: {tail}; fix it, `python -m lab image`"
            ) from error
