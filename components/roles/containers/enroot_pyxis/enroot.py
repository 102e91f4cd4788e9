"""Enroot, and the files of containers that machines share."""

import base64
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from components.node import files, kernel, packages
from components.node import run as running
from components.node.accounts import as_user
from components.node.artifacts import take_artifact
from components.node.failure import Failure
from components.node.log import STATE_DIR, note, printable
from components.node.packages import architecture
from components.node.passwd import user_named
from components.node.run import attempt, exists, run
from components.node.step.step import Step

# Root's state.
CONTAINERS = f"{STATE_DIR}/containers"
# A folder of the share that only the head node's root can write (root_squash).
SHARED = "containers"
_WORK = f"{CONTAINERS}/work"
# Seconds, enough for an image of any size.
_COPY_LIMIT = 3600
TMPFILES = "/etc/tmpfiles.d/tailrack-containers.conf"
SETTINGS = "/etc/enroot/enroot.conf.d/tailrack.conf"
MPI_HOOK = "/etc/enroot/hooks.d/50-slurm-pmi.sh"
# tailrack-containers reads these files.
PROGRAM_SETTINGS = "/etc/tailrack/containers"
_INSTALLED = f"{CONTAINERS}/enroot"
_APPARMOR = "/etc/apparmor.d"
_PROFILE = f"{_APPARMOR}/enroot"
_LIBRARIES = "libnvidia-container-tools"
_SETTINGS_TEXT = """# Written by tailrack: home folders are on the share, where containers do not belong.
ENROOT_RUNTIME_PATH /run/enroot/user-$(id -u)
ENROOT_CACHE_PATH /var/cache/enroot/user-$(id -u)
ENROOT_DATA_PATH @LOCAL@/users/user-$(id -u)
ENROOT_TEMP_PATH /var/tmp
ENROOT_ROOTFS_WRITABLE yes"""
# The parent folders have modes like /tmp's, because each user creates a folder in them.
_TMPFILES_TEXT = """d /run/enroot 1777 root root
d /run/pyxis 0755 root root
d /var/cache/enroot 1777 root root
d @LOCAL@ 0755 root root
d @LOCAL@/users 1777 root root
d @LOCAL@/images 0755 root root
d @LOCAL@/imported 0755 root root
z /dev/fuse 0666 root root"""

_REMOVE = """exec 2>/dev/null
find "$@" -xdev -type d ! -perm -u=rwx -exec chmod u+rwx {} +
rm -rf --one-file-system -- "$@"
find "$@" -xdev -mindepth 1
"""


@dataclass(frozen=True)
class ContainerFile:
    """A file by its checksum, and its address; without one, the step carries it."""

    name: str
    digest: str
    address: str = ""


@dataclass(frozen=True)
class FilesValues:
    """The files, and the mount point of the share."""

    enroot_pyxis_artifacts: list[ContainerFile]
    share_mount: str

    def ending_in(self, pattern: str) -> list[ContainerFile]:
        """Return the files whose name ends in a pattern."""
        return [file for file in self.enroot_pyxis_artifacts if re.search(f"{pattern}$", file.name)]

    def take(self, wanted: list[ContainerFile], folder: str) -> list[str]:
        """Copy files from the share into a folder of root's, and return their paths."""
        for file in wanted:
            take_artifact(f"{self.share_mount}/{SHARED}/artifacts/{file.name}", folder, file.digest)
        return [files.on_disk(f"{folder}/{file.name}") for file in wanted]


@contextmanager
def work_folder() -> Iterator[str]:
    """Make an empty folder that only root can enter, and remove it afterwards."""
    files.remove_folder(_WORK)
    files.make_folder(_WORK, 0o700)
    try:
        yield _WORK
    finally:
        files.remove_folder(_WORK)


def place_copy(source: str, to: str, mode: int = 0o644) -> None:
    """Copy a file to a path in a folder of root's, whole or not at all."""
    folder, _, name = to.rpartition("/")
    if not files.is_folder(folder):
        files.make_folder(folder)
    fresh = f"{folder}/.{name}.new"
    files.remove(fresh)
    run("cp", "--", source, files.on_disk(fresh), limit=_COPY_LIMIT)
    files.set_mode(fresh, mode)
    files.rename(fresh, to)


@dataclass(frozen=True)
class EnrootValues(FilesValues):
    """Enroot's settings.

    enroot_pyxis_local              folder on the machine's own disk
    enroot_pyxis_imported_gb        limit of the images that users' jobs import
    enroot_pyxis_nvidia_libraries   whether containers get the driver's libraries on machines with GPUs
    node_site                       this machine's site
    """

    enroot_pyxis_local: str
    enroot_pyxis_imported_gb: int
    enroot_pyxis_nvidia_libraries: bool
    node_site: str


def ensure_enroot(step: Step, values: FilesValues) -> None:
    """Install Enroot's packages."""
    wanted = values.ending_in(rf"_{re.escape(architecture())}[.]deb")
    record = "\n".join(f"{file.name} {file.digest}" for file in wanted)
    if (files.read(_INSTALLED) or "").rstrip("\n") == record and not packages.missing_of(["enroot", "enroot+caps"]):
        return
    with work_folder() as folder:
        taken = values.take(wanted, folder)
        _leave_out_profile()
        ended = packages.when_unlocked(step.host, "dpkg", "--force-confold", "-i", *taken)
        if not ended.ok:
            reason = ended.errors.partition("\n")[0]
            raise Failure(f"cannot install Enroot's packages ({reason})", "see above, then run up again")
    files.write(_INSTALLED, record)


def _leave_out_profile() -> None:
    """Disable Enroot's AppArmor profile on machines with an older parser than 4.0 (Ubuntu 22.04, Debian 12).

    It cannot parse that profile, and then loads no other profile at boot. This runs before the package's installation,
    which loads the profile.
    """
    if files.is_folder(_APPARMOR) and not files.exists(f"{_APPARMOR}/abi/4.0"):
        files.link(f"{_APPARMOR}/disable/enroot", _PROFILE)


def ensure_apparmor(step: Step) -> None:
    """Load Enroot's AppArmor profile where users need a profile to create namespaces (since Ubuntu 24.04)."""
    needed = kernel.read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").strip() == "1"
    loaded = "enroot-nsenter" in kernel.read("/sys/kernel/security/apparmor/profiles")
    if needed and not loaded and not attempt("apparmor_parser", "-r", _PROFILE).ok:
        raise Failure(
            "AppArmor does not load Enroot's profile, without which users cannot start containers here",
            f"run 'apparmor_parser -r {_PROFILE}' on {step.host} to see why, then run up again",
        )


def ensure_gpu_libraries(step: Step, values: EnrootValues) -> None:
    """Install the tool that gives containers the driver's libraries.

    On machines with GPUs most images do not start without them.
    """
    if not values.enroot_pyxis_nvidia_libraries or exists("nvidia-container-cli"):
        return
    if not any(re.match(r"nvidia\d", name) for name in kernel.names_in("/dev")):
        return
    packages.refresh_lists_now(step.host)
    if not packages.candidate_of(_LIBRARIES):
        raise Failure(
            f"this machine has GPUs, and none of its package sources has {_LIBRARIES}",
            f"add the package source of the NVIDIA container toolkit on {step.host}, or set nvidia_libraries: false in "
            "tailrack:containers (images must then contain or mount the driver's libraries); then run up again",
        )
    packages.ensure(step.host, _LIBRARIES)


def ensure_settings(step: Step, values: EnrootValues) -> None:
    """Write the settings of Enroot and of tailrack-containers."""
    local = values.enroot_pyxis_local
    files.write(TMPFILES, _TMPFILES_TEXT.replace("@LOCAL@", local))
    run("systemd-tmpfiles", "--create", TMPFILES)
    files.write(SETTINGS, _SETTINGS_TEXT.replace("@LOCAL@", local))
    # Enroot's hook for MPI under Slurm.
    files.link(MPI_HOOK, "/usr/share/enroot/hooks.d/50-slurm-pmi.sh")
    shared = f"{values.share_mount}/{SHARED}"
    limit = f"IMPORTED_GB={values.enroot_pyxis_imported_gb}"
    files.write(PROGRAM_SETTINGS, f"SHARED={shared}\nLOCAL={local}\nSITE={values.node_site}\nNODE={step.host}\n{limit}")


def remove_files_of(name: str) -> None:
    """Remove the containers and images of an account, as that account: the next one with its numbers could use them."""
    user, settings = user_named(name), dict(line.split("=", 1) for line in files.lines(PROGRAM_SETTINGS))
    if user and (local := settings.get("LOCAL")):
        folder = f"user-{user.pw_uid}"
        paths = (f"{local}/users/{folder}", f"/var/cache/enroot/{folder}", f"{local}/imported/{folder}-{name}")
        numbers = (user.pw_uid, user.pw_gid)
        ended = as_user(numbers, "/bin/bash", "-c", _REMOVE, "-", *map(files.on_disk, paths), limit=_COPY_LIMIT)
        rest = paths if ended.status == 124 else ended.output.splitlines()
        if rest:
            note(f"could not remove files of {name}: {printable(' '.join(rest), 2000)}")


def ensure_smoke_image() -> None:
    """Build the smoke job's image: a shell, and a random text that only the image contains."""
    image, inside = f"{CONTAINERS}/smoke.sqsh", f"{CONTAINERS}/inside"
    if files.read(image, 1) and files.read(inside, 1):
        return
    with work_folder() as folder:
        for name in ("bin", "etc", "tmp", "root", "usr", "usr/bin", "proc", "sys", "dev", "run", "var"):
            files.make_folder(f"{folder}/{name}")
        place_copy(shutil.which("busybox", path=running.PATH) or "busybox", f"{folder}/bin/busybox", 0o755)
        for name in ("sh", "cat", "id"):
            files.link(f"{folder}/bin/{name}", "busybox")
        text = f"tailrack inside {base64.b64encode(secrets.token_bytes(16)).decode()}"
        for path in (inside, f"{folder}/etc/tailrack-inside"):
            files.write(path, text)
        files.remove(f"{image}.new")
        run("mksquashfs", files.on_disk(folder), files.on_disk(f"{image}.new"), "-all-root", "-no-progress", "-quiet")
    files.rename(f"{image}.new", image)
