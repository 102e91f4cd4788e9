"""Containers for jobs: Enroot starts them for plain users, Pyxis gives Slurm its --container-image."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

from components.roles.cluster_settings import ClusterSettings
from components.roles.enroot_pyxis.settings import Containers, sums
from components.roles.enroot_pyxis.settings_pins import PYXIS, url_of
from components.roles.role import File, Role, template

# What Enroot calls, as its package says, and what it calls where it finds it. The last is the smoke job's image.
RUNTIME = (
    *("curl", "gawk", "jq", "parallel", "squashfs-tools", "zstd", "bsdmainutils"),
    *("pigz", "libcap2-bin", "squashfuse", "fuse-overlayfs", "busybox-static"),
)
LIB = "/usr/local/lib/tailrack"
UNIT = "tailrack-containers"


def role(settings: ClusterSettings) -> Role | None:
    """None where the stack asks for no containers."""
    containers = settings.containers
    if containers is None:
        return None
    files = (
        File(f"{LIB}/importer", template("enroot_pyxis", "importer"), mode="0755"),
        File(f"/usr/local/sbin/{UNIT}", template("enroot_pyxis", UNIT), mode="0755"),
        File(f"/etc/systemd/system/{UNIT}.service", template("enroot_pyxis", f"{UNIT}.service")),
        File(f"/etc/systemd/system/{UNIT}.timer", template("enroot_pyxis", f"{UNIT}.timer")),
        File("/etc/enroot/hooks.d/50-tailrack-ranks.sh", template("enroot_pyxis", "ranks"), mode="0755"),
    )
    return Role(
        "enroot_pyxis",
        after=("nfs_exports", "slurm_release"),
        packages={"head": RUNTIME, "node": RUNTIME},
        files={
            "head": (*files, File(f"{LIB}/import-image", template("enroot_pyxis", "import-image"), mode="0755")),
            "node": files,
        },
        values={
            "ENROOT_PYXIS_LOCAL": containers.local,
            "ENROOT_PYXIS_NVIDIA_LIBRARIES": containers.nvidia_libraries,
            "ENROOT_PYXIS_ARTIFACTS": list(_artifacts(containers)),
            "ENROOT_PYXIS_CONTENTS": list(_contents(containers)),
            "ENROOT_PYXIS_IMAGES": list(_images(containers)),
            "ENROOT_PYXIS_PYXIS": PYXIS,
        },
        texts={"ENROOT_PYXIS_LAUNCHER": template("enroot_pyxis", "slurmstepd.c")},
        secrets={"ENROOT_PYXIS_CREDENTIALS": "".join(_logins(containers))},
    )


def _logins(containers: Containers) -> Iterator[str]:
    """The log-ins at registries as a netrc file has them."""
    for each in containers.registries:
        yield f"machine {each.host.partition(':')[0]} login {each.user} password {each.password.get_secret_value()}\n"


def _artifacts(containers: Containers) -> Iterator[tuple[str, ...]]:
    """File, sha256, address; no address for what comes with the step."""
    base = containers.artifacts
    for file, digest in sums(containers).items():
        yield (file, digest, url_of(base, file)) if base.startswith("https://") else (file, digest)


def _contents(containers: Containers) -> Iterator[tuple[str, str]]:
    """File and its base64, of a folder on the machine that runs the program: it need not be reached from the cluster. A
    pool's program has no such folder, and its nodes need none."""
    if containers.artifacts and not containers.artifacts.startswith("https://"):
        for file in sums(containers):
            yield file, base64.b64encode((Path(containers.artifacts) / file).read_bytes()).decode()


def _images(containers: Containers) -> Iterator[tuple[str, str, str]]:
    """Name, where, source: sites with commas between them, `all` or `none`."""
    for image in containers.images:
        where = "all" if image.where is None else ",".join(image.where) or "none"
        yield image.name, where, image.source
