"""Containers in jobs: Enroot and Pyxis on the machines."""

import base64
import os
import shlex
import stat
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from components.node import files, folders, kernel, systemd
from components.node.accounts import as_user
from components.node.artifacts import Artifact, keep_artifact
from components.node.failure import Failure, do_each
from components.node.fetch import proxy_variables
from components.node.log import STATE_DIR, note
from components.node.packages import architecture
from components.node.passwd import make_daemon_account
from components.node.run import attempt
from components.node.step.step import Step
from components.roles.access.users.accounts import made_here
from components.roles.containers.enroot_pyxis.enroot import (
    CONTAINERS,
    MPI_HOOK,
    PROGRAM_SETTINGS,
    SETTINGS,
    SHARED,
    TMPFILES,
    ContainerFile,
    EnrootValues,
    ensure_apparmor,
    ensure_enroot,
    ensure_gpu_libraries,
    ensure_settings,
    ensure_smoke_image,
    place_copy,
    remove_files_of,
    work_folder,
)
from components.roles.containers.enroot_pyxis.plugin import (
    DROP_IN,
    LAUNCHER,
    PLUGIN,
    PluginValues,
    compile_plugin,
    ensure_launcher,
    ensure_plugin,
    has_plugin,
    plugin_kind,
)
from components.roles.pods.pod.library import AS_LIBRARY, compile_library
from components.slurm_commands import slurm
from components.slurm_commands.slurm import SlurmError

# The cluster's plugstack.conf includes this folder of each machine.
PLUGSTACK = "/etc/tailrack/plugstack.d"
PYXIS_CONF = f"{PLUGSTACK}/pyxis.conf"
_RANKS = "/etc/enroot/hooks.d/50-tailrack-ranks.sh"
# Settings that let users create namespaces, and the values to set.
_NAMESPACES = {"user/max_user_namespaces": "65536", "kernel/unprivileged_userns_clone": "1"}
PLUGSTACK_CONF = "/etc/slurm/plugstack.conf"
_KEYS = ("tailrack:containers.artifacts", "tailrack:containers.checksums")
IMPORT_USER = "tailrack-images"
# Folders of the logins (in memory) and of the import; both exist only during an import.
LOGINS = "/run/tailrack-images"
WORK = f"{STATE_DIR}/images"
# Read the variables of a proxy, which may have a password, from stdin.
_IMPORT = 'eval "$(cat)"; cd "$HOME" && mkdir TEMP && exec enroot import --output image.sqsh "docker://$1"'
# Seconds for one image; large ones take many minutes.
_IMPORT_LIMIT = 5400
# Limit in bytes of the import's output.
_IMPORT_OUTPUT = 10_000_000
POD_PLUGIN = "/usr/local/lib/tailrack/no-containers.so"
SOURCE = "/usr/local/lib/tailrack/no-containers.c"
_LIB = "/usr/local/lib/tailrack"
_FILES = (TMPFILES, SETTINGS, PLUGIN, LAUNCHER, PROGRAM_SETTINGS, DROP_IN, MPI_HOOK)


@dataclass(frozen=True)
class ContainersValues(PluginValues, EnrootValues):
    """The settings of Enroot and Pyxis."""


def install_containers(step: Step, values: ContainersValues, kind: str) -> None:
    """Install them. `kind`: the kind of plugin that this machine needs."""
    files.make_folder(CONTAINERS)
    ensure_enroot(step, values)
    if not files.is_plain(_RANKS):
        raise Failure(f"{_RANKS} is missing", "run up again")
    ensure_apparmor(step)
    ensure_gpu_libraries(step, values)
    ensure_plugin(step, values, kind)
    ensure_launcher(step)
    ensure_settings(step, values)
    ensure_smoke_image()
    # `required` makes slurmd and job steps fail if the plugin is missing. Last, because this line enables it.
    options = f"runtime_path=/run/pyxis container_scope=global importer={_LIB}/importer use_squashfuse=1"
    files.write(PYXIS_CONF, f"required {PLUGIN} {options}")


def check(step: Step, enroot_pyxis_artifacts: list[ContainerFile]) -> None:
    """Check the architecture and the kernel."""
    kind = architecture()
    if not any(file.name.endswith(f"_{kind}.deb") for file in enroot_pyxis_artifacts):
        raise Failure(
            f"this machine is {kind}, and tailrack:containers has no Enroot packages for it",
            f"add Enroot's two packages that end in _{kind}.deb there (their checksums, or the files and their "
            f"SHA256SUMS in your folder; upstream has amd64 and arm64), or leave {step.host} out of this stack",
        )
    for path, value in _NAMESPACES.items():
        if kernel.read(f"/proc/sys/{path}").strip() == "0":
            name = path.replace("/", ".")
            raise Failure(
                f"users cannot create namespaces on this machine ({name} is 0), so no container starts",
                f"allow it on {step.host} (sysctl -w {name}={value}, and in /etc/sysctl.d), then run up again",
            )
    if not kernel.exists("/dev/fuse") and not attempt("modprobe", "-n", "fuse").ok:
        raise Failure(
            "this machine has no /dev/fuse, which Enroot needs to mount images",
            f"load the kernel module fuse on {step.host}, then run up again",
        )


@dataclass(frozen=True)
class Content:
    """A file that the step carries, in base64."""

    name: str
    text: str


@dataclass(frozen=True)
class HeadValues(ContainersValues):
    """The files that the step carries, and the directory of the share."""

    enroot_pyxis_contents: list[Content]
    share_path: str


def head(step: Step, values: HeadValues) -> None:
    """Provide the files and the plugin, and install containers here."""
    fetch_artifacts(step, values)
    kind = plugin_kind(values)
    folder = f"{values.share_path}/{SHARED}/pyxis/{kind}"
    if not has_plugin(folder):
        compile_plugin(step, values, folder)
    if not files.exists(PYXIS_CONF):
        hold_nodes_without_containers()
    install_containers(step, values, kind)
    ensure_plugstack()


def fetch_artifacts(step: Step, values: HeadValues) -> None:
    """Put the files on the share."""
    shared = f"{values.share_path}/{SHARED}"
    # Root owns the parents of these folders, so no account can replace them.
    for folder in (shared, f"{shared}/artifacts", f"{shared}/pyxis"):
        files.make_folder(folder)
    contents = {content.name: content.text for content in values.enroot_pyxis_contents}
    for file in values.enroot_pyxis_artifacts:
        path = f"{shared}/artifacts/{file.name}"
        if file.address:
            keep_artifact(step, path, Artifact(file.digest, file.address, *_KEYS))
        elif files.sha256(path) != file.digest:
            with work_folder() as work:
                carried = f"{work}/{file.name}"
                with os.fdopen(files.open_to_write(carried), "wb") as stream:
                    stream.write(base64.b64decode(contents.get(file.name, "")))
                keep_artifact(step, path, Artifact(file.digest, files.on_disk(carried), *_KEYS))


def hold_nodes_without_containers() -> None:
    """Drain nodes without containers: there Slurm would silently run a container's job on the bare machine.

    Each node's next step resumes it.
    """
    if not systemd.is_active("slurmctld"):
        return
    try:
        nodes = slurm.nodes()
    except SlurmError as error:
        note(str(error))
        return
    for node in nodes:
        if not node.drained and not node.extra.startswith("containers"):
            note(f"{node.name} has no containers yet: drained until its own step finishes")
            slurm.update(nodename=node.name, state="drain", reason="tailrack: containers are not set up here yet")


def ensure_plugstack() -> None:
    """Add a line to Slurm's plugstack.conf, which slurmctld serves to all nodes.

    Each machine loads the plugins in its own folder.
    """
    if files.add_line(PLUGSTACK_CONF, f"include {PLUGSTACK}/*.conf") and systemd.is_active("slurmctld"):
        slurm.scontrol("reconfigure")


def node(step: Step, values: ContainersValues) -> None:
    """Install them."""
    install_containers(step, values, plugin_kind(values))


@dataclass(frozen=True)
class Image:
    """An image. `where`: sites, `all` or `none`."""

    name: str
    where: str
    source: str


def services(step: Step, enroot_pyxis_images: list[Image], enroot_pyxis_credentials: str, share_path: str) -> None:
    """Import and publish the images, and remove others.

    enroot_pyxis_credentials   secret; logins at registries, in netrc format
    """
    folder = f"{share_path}/{SHARED}/images"
    files.make_folder(folder)
    _clear_imports(folder)
    _remove_others(folder, {image.name for image in enroot_pyxis_images})
    if not enroot_pyxis_images:
        return
    make_daemon_account(IMPORT_USER)
    try:
        write_logins(enroot_pyxis_credentials)
        failed = [image.name for image in enroot_pyxis_images if not _publish(image, folder)]
    finally:
        _clear_imports(folder)
    if failed:
        raise Failure(
            f"these images could not be imported: {', '.join(failed)}",
            "see the errors above; correct tailrack:containers.images or .registries, then run up again",
        )


def write_logins(credentials: str) -> None:
    """Write the logins. Only the importing account can read them, and it cannot change them in root's folder."""
    folders.take(LOGINS, 0o711)
    files.write(f"{LOGINS}/.credentials", credentials, 0o400, IMPORT_USER)


def _clear_imports(folder: str) -> None:
    """Remove the files of an import that has finished or was cut off."""
    for path in (LOGINS, WORK):
        files.remove_folder(path)
    for name in files.names_in(folder):
        if name.endswith(".coming") or (name.startswith(".") and name.endswith(".new")):
            files.remove(f"{folder}/{name}")


def _remove_others(folder: str, wanted: set[str]) -> None:
    for file in files.names_in(folder):
        name, _, kind = file.rpartition(".")
        if kind in ("image", "sqsh") and name not in wanted:
            files.remove(f"{folder}/{file}")


def _publish(image: Image, folder: str) -> bool:
    """Publish one image on the share, and return whether it could be imported.

    The previous image stays until the new one is complete.
    """
    path, record, coming = (f"{folder}/{image.name}.{kind}" for kind in ("sqsh", "image", "coming"))
    published = dict(line.split("=", 1) for line in files.lines(record) if "=" in line)
    if published.get("source") == image.source and files.read(path, 1):
        digest = published.get("sha256", "")
    else:
        note(f"importing {image.name} from {image.source}")
        os.close(files.open_to_write(coming, 0o644))
        imported = files.on_disk(image.source) if image.source.startswith("/") else _import(image.source)
        if not imported or not attempt("unsquashfs", "-s", imported).ok:
            files.remove(coming)
            return False
        # A copy, so that root owns the file that nodes read.
        place_copy(imported, path)
        digest = files.sha256(path)
    files.write(record, f"source={image.source}\nsha256={digest}\nwhere={image.where}")
    files.remove(coming)
    return True


def _import(source: str) -> str:
    """Import an image from a registry, and return its path; empty if that failed."""
    image = f"{WORK}/image.sqsh"
    files.remove_folder(WORK)
    folders.give(IMPORT_USER, 0o700, WORK)
    work = files.on_disk(WORK)
    places = {f"ENROOT_{name}_PATH": f"{work}/{name}" for name in ("RUNTIME", "CACHE", "DATA", "TEMP")}
    ended = as_user(
        *(IMPORT_USER, "/bin/bash", "-c", _IMPORT, "-", source),
        limit=_IMPORT_LIMIT,
        most=_IMPORT_OUTPUT,
        stdin="".join(f"export {name}={shlex.quote(value)}\n" for name, value in proxy_variables().items()),
        environment={"HOME": work, "ENROOT_CONFIG_PATH": files.on_disk(LOGINS), **places},
    )
    sys.stderr.write(ended.output)
    # Take the folder from the importing account, and accept the image only if it is a file with one name (no link).
    folders.take(WORK, 0o700)
    state = Path(files.on_disk(image)).lstat() if ended.ok and files.exists(image) else None
    return files.on_disk(image) if state and stat.S_ISREG(state.st_mode) and state.st_nlink == 1 else ""


def pod(step: Step, enroot_pyxis_refusal: str) -> None:
    """Compile the plugin for this machine's Slurm from its C source, and enable it."""
    # Compile each time: Slurm rejects a plugin of another release.
    named, needs = "the plugin that refuses containers", "gcc or libslurm-dev"
    compile_library(enroot_pyxis_refusal, SOURCE, POD_PLUGIN, AS_LIBRARY, step.host, named=named, needs=needs)
    files.write(PYXIS_CONF, f"required {POD_PLUGIN}")


def leave(step: Step) -> None:
    """Remove what tailrack has installed."""
    # Left over from an import that was killed; logins (.credentials) first.
    do_each(*(partial(files.remove_folder, path) for path in (LOGINS, WORK)))
    if not files.exists(PYXIS_CONF):
        return
    do_each(
        *(partial(remove_files_of, name) for name in made_here()),
        *(partial(files.remove, path) for path in _FILES),
        partial(files.remove_folder, CONTAINERS),
        partial(files.remove_lines, PLUGSTACK_CONF, lambda line: line.startswith(f"include {PLUGSTACK}/")),
        # Last, because this file marks that the rest may still be here.
        partial(files.remove, PYXIS_CONF),
    )
