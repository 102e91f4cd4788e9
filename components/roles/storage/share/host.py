"""The share on the machine that serves it, the head node or a storage node: check, serve, export, give back.

NFS version 4 only, with one export file per member for its one address: the kernel's server if the kernel has one;
otherwise nfs-ganesha in user space, from the same files. Other exports of the kernel's server stay beside ours.
"""

import secrets
import stat
from collections.abc import Sequence
from functools import partial

from components.node import files, folders, kernel, packages, systemd
from components.node.failure import Failure, do_each
from components.node.kernel import mounts, mounts_at
from components.node.log import LOG_DIR, STATE_DIR, note
from components.node.run import attempt, succeeds
from components.node.step.step import Step
from components.roles.access.users.accounts import Account
from components.roles.base.foreign_cluster.host import put_back
from components.roles.storage.share import ganesha, protect
from components.roles.storage.share.exports import (
    GANESHA_FILE,
    LIST,
    export_file,
    foreign_ganesha,
    foreign_nfs_ports,
    fstab,
    ganesha_is_ours,
    member_list,
    own_exports,
)
from components.roles.storage.share.ganesha import configure_ganesha
from components.roles.storage.share.kernel_server import (
    KERNEL_SERVER_FILE,
    SERVER,
    STARTED_UNITS,
    ensure_kernel_server,
    reload_kernel_server,
)
from components.roles.storage.share.mount import (
    NFS_BEFORE,
    ROOT_OPTIONS,
    SHARE_OPTIONS,
    ShareValues,
    ensure_mount_point,
    is_ready,
    machine,
    mount_share,
    mount_unit,
    note_units,
    ran_before,
    restore_units,
)

_FOREIGN = f"an NFS server's configuration ({GANESHA_FILE})"
_STOP_SECONDS = 60
# Names of files to show.
_MOST_NAMES = 3
_MOUNT = """[Unit]
Description=The cluster's share, on the machine that serves it

[Mount]
What={path}
Where={mount}
Type=none
Options=bind,nosuid,nodev
LazyUnmount=yes

[Install]
WantedBy=multi-user.target"""
_SHARE_UNIT = """[Unit]
Description=Close the share to set-uid programs and to accounts outside the cluster
After=local-fs.target
RequiresMountsFor={path}
Before=systemd-user-sessions.service nfs-server.service nfs-ganesha.service slurmd.service
# Several accounts may be created in a row.
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart=/usr/local/sbin/tailrack-share close

[Install]
WantedBy=multi-user.target"""
_PROGRAM = "/usr/local/sbin/tailrack-share"
# On the head node: the storage node at the last `up`, its share's name and path. On the share: its name.
_SERVER, _NAME = f"{STATE_DIR}/share-server", ".tailrack/share"
_PATH, _AGAIN, _SERVICE = "tailrack-share.path", "tailrack-share-again.service", "tailrack-share.service"
# After a boot the share is mounted twice on the head node: tailrack-share's mount over the folder appears at the mount
# point too.
_MOST_MOUNTS = 4


def check(step: Step, share_mount: str, share_node: str) -> None:
    """Refuse a machine whose mount point is taken, and report facts about the others."""
    if step.host == share_node and foreign_ganesha():
        step.foreign.append(_FOREIGN)
    path = share_mount
    taken = "" if _share_is_ours(path) else conflict(path)
    if taken:
        raise Failure(
            f"the share cannot be mounted at {path}, which is {taken} on this machine",
            f"set tailrack:storage.mount to another folder, for all machines, or free {path} on {step.host}",
        )
    step.result("kernel_nfs_server", _kernel_knows("nfsd"))
    step.result("open_ports", list(foreign_nfs_ports()))


def _share_is_ours(path: str) -> bool:
    """Return whether an earlier `up` has written the mount unit."""
    return any(line.startswith("Description=The cluster's share") for line in files.lines(mount_unit(path)))


def conflict(path: str) -> str:
    """Return what occupies a mount point; empty if nothing does.

    A foreign mount would make the step fail halfway, and files would be hidden silently.
    """
    entries = [f"{mount.source} {mount.type}" for mount in mounts_at(path)][-1:]
    entries = entries or [f"{row[0]} {row[2]}" for row in map(str.split, fstab()) if row[1:2] == [path] and row[2:]]
    if entries:
        return f"another mount ({', '.join(entries)})"
    kind = folders.kind_of(path)
    if kind == stat.S_IFLNK:
        return "a link"
    if kind not in (0, stat.S_IFDIR):
        return "not a folder"
    names = folders.names_in_any(path)[:_MOST_NAMES] if kind else []
    return f"a folder with files ({' '.join(names)})" if names else ""


def _kernel_knows(file_system: str) -> bool:
    return any(file_system in line.split() for line in kernel.read("/proc/filesystems").splitlines()) or succeeds(
        "modprobe", "-n", file_system
    )


def check_head(step: Step, share_path: str, share_node: str) -> None:
    """Refuse another server than that of the last `up`, and files that its share would hide.

    A foreign server is reported to the role foreign_cluster.
    """
    path, server = share_path, (files.read(_SERVER) or "").partition(" ")[0]
    present = server or ("" if files.exists(protect.SETTINGS) else share_node)
    if present != share_node:
        here, there = (name or step.host for name in (present, share_node))
        key = f"tailrack:storage.node: {present}" if present else "no tailrack:storage.node"
        raise Failure(
            f"the share is on {here}, and the config has it on {there}, where its files are not",
            f"write {key}. Or move it: end all jobs, copy {path} of {here} to {there} as root ('rsync -aHAX "
            "--numeric-ids'), run 'make down' with the old config, then 'make up' with the new one",
        )
    if share_node and not files.exists(mount_unit(path)) and (taken := conflict(path)):
        raise Failure(
            f"the share of {share_node} cannot be mounted at {path}, which is {taken} on this machine",
            f"set tailrack:storage.path to another folder, or move {path} away on {step.host}",
        )
    if not share_node and foreign_ganesha():
        step.foreign.append(_FOREIGN)


def close_share(step: Step, path: str, users: Sequence[Account], head: str = "") -> None:
    """Apply the config to every mount of the share and to its list of excluded accounts.

    Mounts in use are changed in place. `head`: on a storage node, name and address of the head node
    """
    uids = "".join(f"{user.uid} " for user in users)
    folder = files.real_path(path)
    # tailrack-share reads it at every boot and after each change.
    lines = ["# Written by tailrack.", f"SHARE='{folder}'", f"USERS='{uids}'", *([f"HEAD='{head}'"] if head else [])]
    files.write(protect.SETTINGS, "\n".join(lines))
    try:
        protect.close_share()
    except (Failure, OSError) as error:
        note(f"tailrack-share: {error}")
        raise Failure(
            f"cannot close {path} to set-uid programs and to accounts that are not users of the cluster",
            f"see the output of tailrack-share in {LOG_DIR}/{step.name}.log on {step.host}, then run up again",
        ) from error


def head(step: Step, values: ShareValues, users_lines: list[Account], head_kernel_nfs: bool, share_name: str) -> None:
    """Serve the share, or mount the storage node's, where root of this machine works, and where users do.

    head_kernel_nfs   whether the kernel has an NFS server
    share_name        the name of a storage node's share
    """
    server, path = values.share_node, values.share_path
    if not server:
        _serve(step, path, values.share_mount, users_lines, kernel=head_kernel_nfs)
        return
    if (before := (files.read(_SERVER) or "").split()) and before[1] != share_name:
        raise Failure(
            f"{path} on {server} is not the cluster's share: its files are missing there",
            f"mount its disk, or copy its files there as root with {path}/.tailrack ('rsync -aHAX --numeric-ids'); "
            f"or, to begin with an empty share, remove {_SERVER} on {step.host}; then run up again",
        )
    mount_share(step, values, path, ROOT_OPTIONS)
    mount_share(step, values, values.share_mount, SHARE_OPTIONS)
    files.write(_SERVER, f"{server} {share_name} {path}")
    step.result("own_file_system", True)


def storage(
    step: Step,
    values: ShareValues,
    node_open_ports: list[str],
    node_kernel_nfs: bool,
    users_lines: list[Account],
    share_head: str,
    head_address: str,
) -> None:
    """Serve the share from a storage node: to the head node, and to the members in the list that the head node keeps.

    Its name shows whether another machine or disk has taken its place.
    """
    from components.roles.access.users.host import prepare_share

    path, kernel = values.share_path, node_kernel_nfs
    machine(step, node_open_ports)
    prepare_share(step, path)
    files.make_folder(f"{path}/.tailrack")
    if not files.read(f"{path}/{_NAME}"):
        files.write(f"{path}/{_NAME}", secrets.token_hex(16))
    step.result("share_name", (files.read(f"{path}/{_NAME}") or "").strip())
    _serve(step, path, values.share_mount, users_lines, f"{share_head} {head_address}", kernel=kernel)


def _serve(step: Step, path: str, mount: str, users: Sequence[Account], head: str = "", *, kernel: bool) -> None:
    """Serve the share, closed to others before any node mounts it."""
    if kernel:
        note_units(SERVER, *STARTED_UNITS)
        packages.ensure(step.host, "nfs-kernel-server")
    else:
        note_units(ganesha.SERVER)
        packages.ensure(step.host, "nfs-ganesha", "nfs-ganesha-vfs")
    step.result("own_file_system", share_is_a_file_system(path))
    _ensure_local_mount(path, mount)
    close_share(step, path, users, head)
    # Close it at boot before logins and servers, and whenever the machine's accounts change.
    files.write(f"{systemd.UNITS}/{_SERVICE}", _SHARE_UNIT.format(path=path))
    systemd.reload(_SERVICE, _PATH)
    systemd.enable(_SERVICE)
    systemd.enable(_PATH, now=True)
    if kernel:
        ensure_kernel_server(step.host)
    else:
        ganesha.ensure_ganesha(path)


def share_is_a_file_system(path: str) -> bool:
    """Return whether the share is all of its file system, wherever that is mounted.

    With a forged handle a client reaches every file of the file system, in the share or not (no_subtree_check).
    """
    everything, folder = mounts(), files.real_path(path)
    own = next((mount for mount in reversed(everything) if mount.target == folder), None)
    if own is None:
        return False
    inside = f"{own.root.rstrip('/')}/"
    # A mounted file, as in containers, gives no access to others.
    return all(
        f"{mount.root.rstrip('/')}/".startswith(inside) or folders.kind_of(mount.target) != stat.S_IFDIR
        for mount in everything
        if mount.device == own.device
    )


def _ensure_local_mount(path: str, mount: str) -> None:
    """Bind the folder to the mount point. It ends lazily, because users may be working there."""
    unit = f"{systemd.name_of_path(mount)}.mount"
    ensure_mount_point(mount)
    files.write(mount_unit(mount), _MOUNT.format(path=path, mount=mount))
    systemd.reload(unit)
    systemd.enable(unit, now=True)


def register(
    step: Step, node_name: str, node_export: str, share_path: str, share_node: str, head_kernel_nfs: bool
) -> None:
    """Export the share to the node.

    node_export       the line of its export (exports.py)
    head_kernel_nfs   whether the kernel serves the share (a fact of `prepare`)
    """
    if share_node and not is_ready(share_path):
        raise Failure(
            f"the share of the storage node {share_node} does not answer, so no machine can join",
            f"start it and its NFS server (check 'tailscale ping {share_node}'), then run up again",
        )
    step.take_lock()
    files.write(export_file(node_name), node_export)
    _apply(share_path, share_node, head_kernel_nfs)


def release(step: Step, node_name: str, share_path: str, share_node: str) -> None:
    """Leave the share of a storage node that has left (role mounts lets it go only as the last one)."""
    if node_name == share_node:
        for place in [mount.target for mount in mounts() if mount.source.endswith(f":{share_path}")]:
            # Nothing must mount it again: a mount waits for its lost server.
            attempt("systemctl", "stop", f"{systemd.name_of_path(place)}.automount")
            attempt("umount", "-l", place)


def forget(step: Step, node_name: str, share_path: str, share_node: str, head_kernel_nfs: bool) -> None:
    """Take the export back."""
    files.remove(export_file(node_name))
    _apply(share_path, share_node, head_kernel_nfs)


def _apply(path: str, server: str, kernel: bool) -> None:
    """Start the server if needed and reload all export files, so that no old address of a node remains.

    The head node's own step does the rest, because nodes' steps wait for each other. A storage node does it itself
    when the list changes.
    """
    if server:
        if is_ready(path):
            files.make_folder(f"{path}/.tailrack")
            files.write(f"{path}/{LIST}", member_list())
    elif kernel:
        reload_kernel_server()
    else:
        configure_ganesha(path)


def leave(step: Step, share_mount: str) -> None:
    """Undo the work of all phases."""
    places = (share_mount, *(files.read(_SERVER) or "").split()[2:])
    do_each(*(partial(_leave_mounts, path) for path in places), _leave_share, _leave_server, restore_units)
    files.remove(NFS_BEFORE)
    files.remove(_SERVER)


def _leave_mounts(mount: str) -> None:
    name = systemd.name_of_path(mount)
    mount_file, automount_file = mount_unit(mount), mount_unit(mount, "automount")
    if files.exists(automount_file):
        _disable(f"{name}.automount")
        attempt("systemctl", "stop", f"{name}.mount", limit=_STOP_SECONDS)
        # A lost server may keep it from ending.
        if mounts_at(mount):
            attempt("umount", "-l", mount)
    elif files.exists(mount_file):
        # On the head node users may be working there, on a disk that stays.
        attempt("systemctl", "disable", "-q", f"{name}.mount")
        for _ in range(_MOST_MOUNTS):
            if mounts_at(mount):
                attempt("umount", "-l", mount)
    files.remove(automount_file)
    files.remove(mount_file)


def _leave_share() -> None:
    if files.exists(f"{systemd.UNITS}/{_PATH}"):
        # Stop the units that react to account changes first: otherwise their start job replaces the stop job, which
        # then fails ("Job for tailrack-share.service canceled").
        _disable(_PATH)
        attempt("systemctl", "stop", _AGAIN)
        _disable(_SERVICE)
        if files.exists(protect.SETTINGS):
            do_each(protect.open_share)
    attempt("systemctl", "daemon-reload")


def _leave_server() -> None:
    """On the head node: leave its server, if tailrack set it up."""
    exports = own_exports()
    for path in exports:
        files.remove(path)
    # The kernel's server may have other exports too.
    if exports and systemd.is_active(SERVER):
        attempt("exportfs", "-ra")
    if files.remove(KERNEL_SERVER_FILE):
        _disable(SERVER)
        # Stop units that the kernel's server started, unless they ran before.
        for unit in STARTED_UNITS:
            if not ran_before(unit) and not attempt("systemctl", "stop", unit).ok:
                note(f"{unit} is still in use")
    elif ganesha_is_ours():
        _disable(ganesha.SERVER)
        for path in (f"{ganesha.UNIT_FOLDER}/tailrack.conf", f"{ganesha.UNIT_FOLDER}/tailrack-restart.conf"):
            files.remove(path)
        files.remove(GANESHA_FILE)
        put_back(GANESHA_FILE)


def _disable(unit: str) -> None:
    attempt("systemctl", "disable", "-q", "--now", unit)
