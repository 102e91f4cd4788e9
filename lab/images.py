"""The lab's images, named after a digest of what goes into them."""

import hashlib
import shutil
import tempfile
import zipapp
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import BuildError, ImageNotFound

from lab import binaries, debian
from lab.errors import LabError
from lab.identity import CHECKOUT
from lab.likeness import machine
from lab.progress import say, timed
from locks import locked

CACHE = CHECKOUT / ".tailrack" / "cache"
"""Default folder for built programs; the images themselves are the real cache."""

IMAGE_FOLDER = CHECKOUT / "lab" / "image"
NFS_MOUNT = CHECKOUT / "lab" / "nfs_mount"
CONTROL_DOCKERFILE = 'FROM scratch\nCOPY control /control\nENTRYPOINT ["/control"]\n'


@dataclass(frozen=True)
class Images:
    """Tags of the lab's images."""

    node: str
    bare: str
    control: str
    likenesses: Mapping[str, str]

    def of_machine(self, like: machine.Like, *, bare: bool) -> str:
        """Return the tag of the image of a machine."""
        return self.likenesses[like] if like else self.bare if bare else self.node


def digest(files: Iterable[Path], *texts: str) -> str:
    """Return 12 hex digits over the names and contents of `files` and over `texts`."""
    total, by_name = hashlib.sha256(), sorted(files, key=lambda file: file.name)
    for part in [piece for file in by_name for piece in (file.name.encode(), file.read_bytes())]:
        total.update(len(part).to_bytes(8, "big") + part)
    for text in texts:
        total.update(len(text).to_bytes(8, "big") + text.encode())
    return total.hexdigest()[:12]


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
        likenesses={
            like: f"tailrack-lab-node-{like}:{digest(_likeness_files(like), node, *_likeness_arguments().values())}"
            for like in machine.LIKENESSES
        },
    )


def _likeness_files(like: str) -> list[Path]:
    return [machine.FOLDER / "boot.sh", *(machine.FOLDER / like).iterdir()]


def _likeness_arguments() -> dict[str, str]:
    return {"CLASHING_UID": str(machine.CLASHING_UID), "CLASHING_USER": machine.CLASHING_USER}


def ensure_images(client: docker.DockerClient, wanted: Iterable[str], cache: Path = CACHE) -> None:
    """Build those of the `wanted` tags (of `tags()`) that are not there.

    Raises LabError when a program or an image does not build.
    """
    known = tags()
    with locked(cache / "image.lock"):
        for tag in wanted:
            _ensure_image(client, tag, known, cache)


def _ensure_image(client: docker.DockerClient, tag: str, known: Images, cache: Path) -> None:
    if _exists(client, tag):
        return
    if tag in known.likenesses.values():
        _ensure_image(client, known.bare, known, cache)
        _build_likeness(client, tag, known, cache)
        return
    built = binaries.build(_binaries_folder(cache))
    if tag == known.control:
        _build_control(client, tag, built, cache)
    else:
        _build_node(client, tag, "bare" if tag == known.bare else "node", built, cache)


def _exists(client: docker.DockerClient, tag: str) -> bool:
    try:
        client.images.get(tag)
    except ImageNotFound:
        return False
    return True


def _binaries_folder(cache: Path) -> Path:
    module = binaries.MODULE
    sources = [*binaries.sources(), module / "go.mod", module / "go.sum", Path(binaries.__file__)]
    folder = cache / f"go-{digest(sources)}"
    if not (folder / "done").exists():
        say("image: build tailscale, tailscaled and the control server with Go (minutes the first time)")
    return folder


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


def _build_node(client: docker.DockerClient, tag: str, target: str, built: binaries.Binaries, cache: Path) -> None:
    mirrors = debian.find_mirrors()
    base = debian.ensure_base(client, mirrors, cache)
    with tempfile.TemporaryDirectory(dir=cache, prefix="node-") as context:
        for file in IMAGE_FOLDER.iterdir():
            if file.is_file():
                shutil.copy(file, context)
        write_nfs_mount(Path(context) / "mount.nfs4")
        for file in (built.tailscale, built.tailscaled, built.unit, built.defaults):
            shutil.copy(file, context)
        (Path(context) / "sources.list").write_text(mirrors.sources_list, encoding="utf-8")
        _build(client, tag, Path(context), target, {"BASE": base})


def _build_likeness(client: docker.DockerClient, tag: str, known: Images, cache: Path) -> None:
    like = next(like for like, layer in known.likenesses.items() if layer == tag)
    with tempfile.TemporaryDirectory(dir=cache, prefix=f"{like}-") as context:
        for file in _likeness_files(like):
            shutil.copy(file, context)
        _build(client, tag, Path(context), arguments={"BASE": known.bare, **_likeness_arguments()})


def _build(
    client: docker.DockerClient,
    tag: str,
    context: Path,
    target: str = "",
    arguments: dict[str, str] | None = None,
) -> None:
    """Build one image, saying each step."""
    with timed(f"image: build {tag}"):
        try:
            client.images.build(
                path=str(context),
                tag=tag,
                target=target or None,
                buildargs=arguments or {},
                rm=True,
                forcerm=True,
            )
        except BuildError as error:
            lines = [str(entry.get("stream", "")).strip() for entry in error.build_log]
            tail = " | ".join(line for line in lines[-8:] if line)
            raise LabError(f"image {tag} does not build: {error.msg}: {tail}; fix it, `python -m lab image`") from error
