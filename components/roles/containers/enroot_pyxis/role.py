"""Containers for jobs: Enroot starts them without root; Pyxis adds --container-image to Slurm."""

import base64
from collections.abc import Iterator
from pathlib import Path

from components.node.declared import DATA
from components.roles.cluster_settings import ClusterSettings
from components.roles.containers.enroot_pyxis.settings import PYXIS, Containers, sums, url_of
from components.roles.role import File, Role, template

# Programs that Enroot needs or can use. The last one is for the image of the smoke job.
RUNTIME = (
    *("curl", "gawk", "jq", "parallel", "squashfs-tools", "zstd", "bsdmainutils"),
    *("pigz", "libcap2-bin", "squashfuse", "fuse-overlayfs", "busybox-static"),
)
LIB = "/usr/local/lib/tailrack"
UNIT = "tailrack-containers"


def role(settings: ClusterSettings) -> Role | None:
    """Return the role, or None without containers in the config."""
    containers = settings.containers
    if containers is None:
        return None
    files = (
        File(f"{LIB}/importer", template("enroot_pyxis", "importer"), mode="0755"),
        File(f"/usr/local/sbin/{UNIT}", template("enroot_pyxis", UNIT), mode="0755"),
        File("/etc/enroot/hooks.d/50-tailrack-ranks.sh", template("enroot_pyxis", "ranks"), mode="0755"),
    )
    return Role(
        "enroot_pyxis",
        # `pod` installs the compiler.
        after=("share", "slurm_release", "pod"),
        packages={"head": RUNTIME, "node": RUNTIME, "pod": ("libslurm-dev",)},
        files={"head": files, "node": files},
        # Machines keep their containers until they leave.
        made={phase: tuple(f"{DATA}{file.path}" for file in files) for phase in ("head", "node")},
        values={
            "local": containers.local,
            "imported_gb": containers.imported_gb,
            "nvidia_libraries": containers.nvidia_libraries,
            "artifacts": list(_artifacts(containers)),
            "contents": list(_contents(containers)),
            "images": list(_images(containers)),
            "pyxis": PYXIS,
        },
        texts={
            "launcher": template("enroot_pyxis", "slurmstepd.c"),
            "refusal": template("enroot_pyxis", "no-containers.c"),
        },
        secrets={"credentials": "".join(_logins(containers))},
    )


def _logins(containers: Containers) -> Iterator[str]:
    """Yield the lines of a netrc file with the logins at registries."""
    for registry in containers.registries:
        host, password = registry.host.partition(":")[0], registry.password.get_secret_value()
        yield f"machine {host} login {registry.user} password {password}\n"


def _artifacts(containers: Containers) -> Iterator[tuple[str, ...]]:
    """Yield file, sha256 and address; no address for a file that the step carries."""
    base = containers.artifacts
    for file, digest in sums(containers).items():
        yield (file, digest, url_of(base, file)) if base.startswith("https://") else (file, digest)


def _contents(containers: Containers) -> Iterator[tuple[str, str]]:
    """Yield the name and base64 of each file in a folder of artifacts on the machine that runs the program.

    A pool's program has no such folder; its nodes take the files from the share.
    """
    if containers.artifacts and not containers.artifacts.startswith("https://"):
        for file in sums(containers):
            yield file, base64.b64encode((Path(containers.artifacts) / file).read_bytes()).decode()


def _images(containers: Containers) -> Iterator[tuple[str, str, str]]:
    """Yield name, where and source; `where` is `all`, `none` or sites separated by commas."""
    for image in containers.images:
        where = "all" if image.where is None else ",".join(image.where) or "none"
        yield image.name, where, image.source
