"""Mount the share on a node.

NFS version 4 needs none of the programs of earlier versions. They stay if foreign NFS before version 4 needs them.
"""

import re
import stat
from dataclasses import dataclass
from itertools import zip_longest

from components.node import files, folders, packages, systemd
from components.node.failure import Failure
from components.node.kernel import mounts_at
from components.node.log import STATE_DIR, note
from components.node.run import attempt, exists, run
from components.node.step.step import Step
from components.node.waiting import wait_until

# Lines `unit NAME ENABLED ACTIVE` and `folder PATH`.
NFS_BEFORE = f"{STATE_DIR}/nfs-before"
# States of unit files that systemd starts by itself or at a request; "enabled-runtime" begins with one.
_STARTED = ("static", "indirect", "alias", "generated")
_UNITS = (
    *("rpcbind.socket", "rpcbind.service", "rpc-statd.service", "rpc-statd-notify.service"),
    "nfs-ganesha-lock.service",
)
_PORTMAPPER = "111"
# Seconds for a mount, and for the step to wait for it. mount.nfs4 retries for two minutes on its own; the first path to
# a server may use a relay, and a starting server takes a while.
SHARE_WAIT = 300
# Seconds for a look at the share.
_LOOK = 20
# Other machines' root can create any file on the share, so no program from it may run with other rights here.
SHARE_OPTIONS = "hard,nosuid,nodev,nfsvers=4.2,_netdev"
# Root's own work on the head node fails after a minute instead of waiting for a lost storage node.
ROOT_OPTIONS = SHARE_OPTIONS.replace("hard", "softerr,timeo=100,retrans=2")
# A server that is down for a while must not make systemd give up the mount.
_MOUNT = """# Written by tailrack.
[Unit]
Description={description}
After={after}
{needs}={after}
StartLimitIntervalSec=0

[Mount]
What={source}
Where={path}
Type=nfs4
Options={options}
TimeoutSec={seconds}"""
_AUTOMOUNT = """# Written by tailrack.
[Unit]
Description={description}, mounted at first use

[Automount]
Where={path}

[Install]
WantedBy=multi-user.target"""


@dataclass(frozen=True)
class Mounted:
    """A mount of NFS version 4. `seconds`: its limit, in which programs that use it wait."""

    path: str
    source: str
    options: str
    seconds: int
    description: str
    tailnet: bool

    def text(self) -> str:
        """Return the text of the unit that mounts it."""
        after, needs = ("tailrack-tailnet.service", "Requires") if self.tailnet else ("network-online.target", "Wants")
        return _MOUNT.format(**vars(self), after=after, needs=needs)

    def write(self) -> None:
        """Write its units."""
        files.write(mount_unit(self.path), self.text())
        files.write(mount_unit(self.path, "automount"), _AUTOMOUNT.format(**vars(self)))


def start(*paths: str) -> None:
    """Make systemd read the units of mount points, and start automounts that do not run."""
    names = [systemd.name_of_path(path) for path in paths]
    if not names:
        return
    systemd.reload(*(f"{name}.{kind}" for name in names for kind in ("mount", "automount")))
    systemd.enable(*(f"{name}.automount" for name in names))
    for name in names:
        if not systemd.is_active(f"{name}.automount"):
            attempt("systemctl", "reset-failed", f"{name}.automount", f"{name}.mount", quiet=True)
            attempt("systemctl", "start", f"{name}.automount")


def note_units(*units: str) -> None:
    """Note units once, before the first change."""
    noted = {line.split()[1] for line in files.lines(NFS_BEFORE) if line.startswith("unit ")}
    unnoted = [unit for unit in units if unit not in noted]
    if not unnoted:
        return
    # Some lines per unit, in the units' order, with empty lines between.
    shown = run("systemctl", "show", "-p", "UnitFileState", "-p", "ActiveState", *unnoted).split("\n\n")
    lines = files.lines(NFS_BEFORE)
    for unit, text in zip_longest(unnoted, shown[: len(unnoted)], fillvalue=""):
        state = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        enabled, active = state.get("UnitFileState"), state.get("ActiveState")
        lines.append(f"unit {unit} {enabled or 'not-found'} {active or 'inactive'}")
    files.write(NFS_BEFORE, "\n".join(lines))


def ran_before(unit: str) -> bool:
    """Return whether a unit ran before, or was not noted."""
    pattern = re.compile(rf"unit {re.escape(unit)} \S+ (inactive|failed)")
    return not any(map(pattern.fullmatch, files.lines(NFS_BEFORE)))


def restore_units(pattern: str = ".") -> None:
    """Restore the units whose lines match a pattern: masked, disabled and missing ones stay so; those that ran run.

    An error does not end it.
    """
    matches = re.compile(pattern).search
    rows = [line.split() for line in files.lines(NFS_BEFORE) if matches(line)]
    for kind, name, *states in rows:
        if kind == "unit":
            _restore(name, states[0])
        elif kind == "folder" and not files.remove_if_empty(name):
            note(f"{name} is not empty")
    units = [row for row in rows if row[0] == "unit"]
    # Once for all, because it takes seconds on a busy machine.
    if units:
        attempt("systemctl", "daemon-reload")
    for _, name, _, active in units:
        if active == "active" and not attempt("systemctl", "restart", name).ok:
            note(f"{name} does not start")
    files.remove_lines(NFS_BEFORE, lambda line: bool(matches(line)))


def _restore(name: str, enabled: str) -> None:
    if enabled.startswith("masked"):
        return
    if not _change("unmask", name):
        note(f"{name} is masked still")
    if enabled == "enabled":
        if not _change("enable", name):
            note(f"{name} is not enabled")
    elif not enabled.startswith("enabled") and enabled not in _STARTED and not _change("disable", name):
        note(f"{name} is not there")


def _change(verb: str, name: str) -> bool:
    return attempt("systemctl", verb, "-q", "--no-reload", name).ok


def mount_unit(path: str, kind: str = "mount") -> str:
    """Return the path of the file of the mount point's unit: its `mount` or its `automount`."""
    return f"{systemd.UNITS}/{systemd.name_of_path(path)}.{kind}"


def ensure_mount_point(path: str) -> None:
    """Create the share's mount point, and note that it did not exist."""
    try:
        if folders.kind_of(path) == stat.S_IFDIR:
            return
    except OSError:
        # A mount is there whose server is gone.
        return
    files.add_line(NFS_BEFORE, f"folder {path}")
    files.make_folder(path)


def machine(step: Step, node_open_ports: list[str]) -> None:
    """Mask and stop the units, or restore them."""
    if _PORTMAPPER in node_open_ports:
        note(
            "this machine uses NFS before version 4: keeping rpcbind and rpc.statd, and ports "
            f"{', '.join(node_open_ports)} open"
        )
        # If that NFS is new, undo the masks that the cluster set before.
        restore_units(r"^unit (rpc|nfs-ganesha-lock)")
        return
    note_units(*_UNITS)
    _mask()
    # An interrupted step may not have reloaded systemd.
    if set(run("systemctl", "show", "-P", "LoadState", *_UNITS).split()) - {"masked"}:
        systemd.reload_later(step)
    # Nor may it have stopped them. A missing unit cannot be stopped.
    if not attempt("systemctl", "stop", "-q", *_UNITS).ok:
        note(f"not all of {' '.join(_UNITS)} exist")


def _mask() -> None:
    """Mask units that do not exist too, because a package that comes later must not start them."""
    unmasked = [unit for unit in _UNITS if files.followed(f"{systemd.UNITS}/{unit}") != "/dev/null"]
    # Write the links without systemd, which would otherwise take all loaded units for outdated. It masks none of
    # several units if one of them fails.
    mask = ("systemctl", "--root=/", "mask", "-q")
    if unmasked and not attempt(*mask, *unmasked).ok:
        for unit in unmasked:
            if not attempt(*mask, unit).ok:
                note(f"cannot mask {unit}")


@dataclass(frozen=True)
class ShareValues:
    """The share, and where machines mount it.

    share_address    the tailnet address of its server
    share_node       the storage node; empty if the head node serves the share
    share_restored   the backup from which the head node was restored, empty without one
    """

    share_address: str
    share_node: str
    share_path: str
    share_mount: str
    share_restored: str


def node(step: Step, values: ShareValues) -> None:
    """Mount the share; a storage node has done so when it began to serve it."""
    if step.host != values.share_node:
        mount_share(step, values, values.share_mount, SHARE_OPTIONS)


def mount_share(step: Step, values: ShareValues, mount: str, options: str) -> None:
    """Mount the share and wait until it answers."""
    share = f"{values.share_address}:{values.share_path}"
    if not exists("mount.nfs4"):
        packages.ensure(step.host, "nfs-common")
    ensure_mount_point(mount)
    mount_name, automount_name = (f"{systemd.name_of_path(mount)}.{kind}" for kind in ("mount", "automount"))
    Mounted(mount, share, options, SHARE_WAIT, "The cluster's share", tailnet=True).write()
    # Without systemd's own automount.
    sources = [found.source for found in mounts_at(mount) if found.type != "autofs"]
    if sources and values.share_restored and _is_stale(mount):
        note("the mounted share is lost with its server: mounting it again")
        run("umount", "-l", mount)
        run("systemctl", "stop", automount_name, mount_name)
    elif sources and sources != [share]:
        run("systemctl", "stop", automount_name, mount_name)
    start(mount)
    if not wait_until(lambda: answers(mount), SHARE_WAIT):
        shown = attempt("systemctl", "show", "-P", "Result", mount_name)
        raise Failure(
            f"the share {share} does not mount at {mount} within {SHARE_WAIT}s (systemd says: "
            f"{shown.output.strip() if shown.ok else 'unknown'})",
            f"see 'journalctl -u {mount_name}' on {step.host} and the NFS server's log on "
            f"{values.share_node or 'the head node'}",
        )


def is_ready(path: str) -> bool:
    """Return whether root of the head node can write to the share: a lost storage node is not waited for, and root
    alone can change the folder.
    """
    return (not files.exists(mount_unit(path, "automount")) or answers(path)) and files.is_closed(path)


def answers(mount: str) -> bool:
    """Return whether the share answers at its mount point."""
    return attempt("stat", "-t", files.on_disk(f"{mount}/home"), limit=_LOOK).ok


def _is_stale(mount: str) -> bool:
    """Return whether the server was replaced by another machine at the same address, which lacks the old handles."""
    paths = (files.on_disk(path) for path in (mount, f"{mount}/home"))
    return "Stale file handle" in attempt("stat", "-t", *paths, limit=_LOOK, keep_errors=True).errors
