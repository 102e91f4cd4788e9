"""The lab's images, named by a digest of their inputs."""

import shutil
import tempfile
import zipapp
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import BuildError

from cli.file_lock import locked
from lab import debian, programs
from lab.distributions import USUAL, Distribution, distribution_of
from lab.docker_daemon import find
from lab.errors import LabError
from lab.identity import CHECKOUT
from lab.profiles import machine
from lab.programs import CACHE, digest
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
    versions = _versions()
    files = [*(file for file in IMAGE_FOLDER.iterdir() if file.is_file()), *NFS_MOUNT.glob("*.py")]
    node = digest([*files, *versions, IMAGE_FOLDER / "packages" / "Dockerfile"], USUAL.release)
    server = digest([*programs.sources(), *versions], CONTROL_DOCKERFILE)
    return Images(
        node=f"tailrack-lab-node:{node}",
        bare=f"tailrack-lab-node-bare:{node}",
        control=f"tailrack-lab-control:{server}",
        profiles={like: f"tailrack-lab-node-{like}:{_profile_digest(like, node)}" for like in machine.PROFILES},
    )


def _versions() -> list[Path]:
    """Return the files that decide Tailscale's version."""
    return [programs.MODULE / "go.mod", programs.MODULE / "go.sum"]


def _profile_digest(like: machine.Profile, node: str) -> str:
    if distribution_of(like) != USUAL:
        return digest([], node, distribution_of(like).release)
    if like == "pod":
        return digest([*(machine.FOLDER / like).iterdir(), *_versions()], USUAL.release)
    return digest(_profile_files(like), node, *_profile_arguments().values())


def _profile_files(like: str) -> list[Path]:
    return [machine.FOLDER / "boot.sh", *(machine.FOLDER / like).iterdir()]


def _profile_arguments() -> dict[str, str]:
    return {"CLASHING_UID": str(machine.CLASHING_UID), "CLASHING_USER": machine.CLASHING_USER}


def ensure_images(client: docker.DockerClient, wanted: Iterable[str]) -> None:
    """Build the missing images of the `wanted` tags (from `tags()`) and their base images.

    Raises LabError when a program or an image does not build.
    """
    images = tags()
    if all(find(client.images, tag) for tag in wanted):
        return  # without waiting for builds of other images
    with locked(CACHE / "image.lock"):
        missing = [tag for tag in dict.fromkeys(wanted) if not find(client.images, tag)]
        layers = [tag for tag in missing if _is_layer(tag, images)]
        pods = [tag for tag in missing if tag == images.profiles["pod"]]
        first = [tag for tag in missing if tag not in (*layers, *pods)]
        if layers and images.bare not in first and not find(client.images, images.bare):
            first.append(images.bare)
        if first:
            _build_first(client, first, images)
        for tag in layers:
            arguments = {"BASE": images.bare, **_profile_arguments()}
            _build(client, tag, _profile_files(_like(tag, images)), arguments=arguments)
        for tag in pods:
            _build_pod(client, tag, programs.ready())


def _like(tag: str, images: Images) -> machine.Like:
    """Return the profile of an image's machines."""
    return next((like for like in machine.PROFILES if images.profiles[like] == tag), "")


def _is_layer(tag: str, images: Images) -> bool:
    """Whether an image stands on the bare one, as those do that look like a machine of the usual distribution."""
    like = _like(tag, images)
    return like not in ("", "pod") and distribution_of(like) == USUAL


def _build_first(client: docker.DockerClient, wanted: list[str], images: Images) -> None:
    """Build images that stand on none of the lab's.

    Go and packages have nothing to do with each other, nor have those of two distributions.
    """
    machines = [tag for tag in wanted if tag != images.control]
    # The helper for mounts is made of the usual one's packages on all.
    roots = dict.fromkeys([USUAL, *(distribution_of(_like(tag, images)) for tag in machines)] if machines else [])
    with ThreadPoolExecutor(1 + len(roots)) as aside:
        begun = aside.submit(programs.ready)
        packages = dict(zip(roots, aside.map(lambda of: install_packages(client, of), roots), strict=True))
        built = begun.result()
    for tag in wanted:
        if tag == images.control:
            _build(client, tag, [built / "control"], {"Dockerfile": CONTROL_DOCKERFILE})
        else:
            node_packages = packages[distribution_of(_like(tag, images))]["cluster" if tag == images.node else "system"]
            _build_node(client, tag, node_packages, packages[USUAL]["helper"], built)


def write_nfs_mount(program: Path) -> None:
    """Write the NFS mount helper as the one file that it is on a machine: its package, in an archive Python runs."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(NFS_MOUNT, Path(folder) / "nfs_mount", ignore=shutil.ignore_patterns("__pycache__"))
        zipapp.create_archive(folder, program, "/usr/bin/python3", "nfs_mount.program:main")


def install_packages(client: docker.DockerClient, of: Distribution) -> dict[str, str]:
    """Build the stages that only install packages; return the images by stage. Docker caches them for later images."""
    mirrors = debian.find_mirrors(of=of)
    texts = {"sources.list": mirrors.sources_list}
    arguments = {"BASE": debian.ensure_base(client, mirrors, CACHE)}
    # Machines of another distribution have none of the cluster's packages; the helper for mounts is the same on all.
    stages = ("system", "cluster", "helper") if of == USUAL else ("system",)
    dockerfile = IMAGE_FOLDER / "packages" / "Dockerfile"
    return {stage: _build(client, "", [dockerfile], texts, arguments, target=stage) for stage in stages}


def _build_node(client: docker.DockerClient, tag: str, packages: str, helper: str, built: Path) -> None:
    files = [file for file in IMAGE_FOLDER.iterdir() if file.is_file()]
    files += [built / name for name in programs.TAILSCALE_FILES]
    with tempfile.TemporaryDirectory() as folder:
        mount = Path(folder) / "mount.pyz"
        write_nfs_mount(mount)
        _build(client, tag, [*files, mount], arguments={"PACKAGES": packages, "HELPER": helper})


def _build_pod(client: docker.DockerClient, tag: str, built: Path) -> None:
    mirrors = debian.find_mirrors()
    base = debian.ensure_base(client, mirrors, CACHE)
    files = [*(machine.FOLDER / "pod").iterdir(), built / "tailscale", built / "tailscaled"]
    _build(client, tag, files, {"sources.list": mirrors.sources_list}, {"BASE": base})


def _build(
    client: docker.DockerClient,
    tag: str,
    files: Iterable[Path],
    texts: Mapping[str, str] | None = None,
    arguments: dict[str, str] | None = None,
    target: str = "",
) -> str:
    """Build one image, or a stage without a tag, of files and of texts by name, saying so; return its id."""
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="build-") as context, timed(f"image: build {tag or target}"):
        for file in files:
            shutil.copy(file, context)
        for name, text in (texts or {}).items():
            (Path(context) / name).write_text(text, encoding="utf-8")
        try:
            image, _ = client.images.build(
                path=context,
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
    return str(image.id)
