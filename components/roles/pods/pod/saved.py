"""Keep the cluster's files of a container's disk on the pod's volume, because a stopped container loses its disk.

The start command of the provider's template runs /workspace/.tailrack/boot, which starts the command `pod-boot`.
"""

import os
from collections.abc import Sequence

from components.node import files, folders
from components.node.failure import Failure, run_program
from components.node.install import MARK, sync
from components.node.locks import PRIVATE, Lock
from components.node.log import note
from components.node.packages import installed, unstarted
from components.node.run import attempt, run
from components.node.step import main as step_main
from components.node.step.main import prepare_folders
from components.node.step.work import JOINED

# All belong to root. The munge key has its own account, whose number another container may give to another one.
_FOLDERS = ("/etc/tailrack", "/usr/local/lib/tailrack", "/var/lib/tailrack")
_FILES = (
    *("/etc/munge/munge.key", "/etc/apt/apt.conf.d/99tailrack"),
    *("/etc/ssh/tailrack_authority.pub", "/etc/ssh/tailrack_leave_key", "/etc/ssh/tailrack_sshd_config"),
    *("/etc/ssh/tailrack_host_key", "/etc/ssh/tailrack_host_key.pub", "/etc/ssh/tailrack_host_key-cert.pub"),
    *("/etc/ssh/ssh_config.d/tailrack.conf", "/usr/local/sbin/tailrack-leave", "/usr/local/sbin/tailrack-answer"),
    *("/usr/local/sbin/tailrack-known-hosts", "/usr/local/sbin/tailrack-certificate", "/usr/local/sbin/tailrack-nhc"),
    *("/usr/local/sbin/tailrack-checks", "/usr/local/sbin/tailrack-health"),
)
# Exists in a container whose files are its own or restored.
_HERE = "/var/lib/tailrack/node-name"
# The saved files on the container's own disk, while they are put in place.
_COPY = "/var/lib/tailrack-restored"
# The cluster's files without packages need 5 MB, twice while they change.
_ROOM_MB = 32
# The provider's volume, which outlives the container and its disk.
VOLUME = "/workspace"
STATE = f"{VOLUME}/.tailrack"
TAILNET = f"{STATE}/tailscale"
PACKAGES = f"{STATE}/packages"
# The cluster's files of the container's disk, for the next container.
SAVED = f"{STATE}/saved"
BOOT = f"{STATE}/boot"
# Exists while the pod has all that jobs need.
READY = f"{PRIVATE}/pod-ready"
# Users' homes, which are on the share elsewhere.
HOMES = f"{VOLUME}/shared"
# tailscaled's proxy. Everything that listens on 127.0.0.1 is open to the tailnet, but not this address.
PROXY = "127.0.0.3:1055"
SOCKET = "/var/run/tailscale/tailscaled.sock"
# The SSH server for the head node's requests. The provider's server does not see who connects over the tailnet.
SSHD_PORT = 6815


def require_room(host: str) -> None:
    """Raise Failure if the volume has no room for the cluster's files. Users' homes are there too."""
    volume = os.statvfs(files.on_disk(VOLUME))
    if (free := volume.f_bavail * volume.f_frsize // 2**20) < _ROOM_MB:
        raise _no_room(host, f"{free} MB are free")


def _no_room(host: str, detail: str) -> Failure:
    return Failure(
        f"the volume of {host} at {VOLUME} is full ({detail})",
        f"remove files there ('du -xm {VOLUME} | sort -n | tail' on {host} finds large ones), then run up again",
    )


def save(host: str) -> None:
    """Copy the files to the volume. Raise Failure if it is full."""
    files.make_folder(SAVED, 0o700)
    paths = [path for path in (*_FOLDERS, *_FILES) if files.exists(path)]
    # The runtime folders of runit contain pipes.
    words = ("rsync", "-aR", "--delete-after", "--exclude=supervise", *paths, f"{SAVED}/")
    # A program gets its mark when it is whole: the next container may come while only a part is here.
    copied = attempt(*words, f"--exclude={MARK}", keep_errors=True)
    copied = attempt(*words, keep_errors=True) if copied.ok else copied
    if "No space left" in copied.errors or "quota exceeded" in copied.errors:
        raise _no_room(host, "the cluster's files could not be saved there")
    if not copied.ok:
        raise Failure(
            f"rsync cannot save the cluster's files in {SAVED}: {copied.errors.strip()[-300:]}",
            f"repair {VOLUME} on {host}, then run up again",
        )


def save_again() -> None:
    """Save after a request of the head node has changed files. It does nothing on a machine that saves none.

    The request has succeeded, so an error is only logged; the next step of an `up` saves again and reports it.
    """
    if files.exists(f"{SAVED}{_HERE}"):
        try:
            save((files.read(_HERE) or "").strip())
        except (Failure, OSError) as error:
            note(f"{SAVED} has older files: {error}")


def restore() -> bool:
    """Copy the files from the volume to the disk of a new container, and return whether it was new."""
    if files.exists(_HERE) or not files.exists(f"{SAVED}{_HERE}"):
        return False
    note("this container is new: restoring the cluster's files from its volume")
    _install_packages()
    # Its package gives the folder to another account.
    folders.take("/etc/munge", 0o711)
    files.make_folder(_COPY, 0o700)
    run("cp", "-a", "-T", files.on_disk(SAVED), files.on_disk(_COPY))
    sync(files.on_disk(_COPY))
    # The last folder has _HERE.
    for path in (*_FILES, *_FOLDERS):
        if files.exists(f"{_COPY}{path}"):
            _put(path)
    files.remove_folder(_COPY)
    # The packages of the join may be missing here.
    files.remove(JOINED)
    return True


def _put(path: str) -> None:
    """Rename a copy into place. An `up` may install the program there now, so neither may see a part of the other's."""
    try:
        files.rename(f"{_COPY}{path}", path)
    except OSError:
        # The folder exists.
        if not files.is_folder(f"{_COPY}{path}"):
            raise
        for name in files.names_in(f"{_COPY}{path}"):
            _put(f"{path}/{name}")


def _install_packages() -> None:
    """Install the packages that earlier steps have downloaded. The next step installs those that are missing."""
    names = [name for name in files.names_in(PACKAGES) if name.endswith(".deb")]
    there = installed([name.partition("_")[0] for name in names])
    missing = [f"{PACKAGES}/{name}" for name in names if name.partition("_")[0] not in there]
    if missing and not unstarted("this pod", "dpkg", "-i", "--force-confold", *missing).ok:
        note("dpkg could not install all packages of the volume")


def boot(arguments: Sequence[str]) -> int:
    """Restore the files, start the services, and return the exit status."""
    os.environ.update({"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"})
    return run_program("tailrack-boot", _boot)


def _boot() -> int:
    # A step of an `up` may come at the same time.
    with Lock("tailrack"):
        prepare_folders()
        restore()
        return step_main.run_kept(["boot"])
