"""The exports of the share, and the NFS servers, exports and mounts that a machine had before the cluster.

The share has a file of each member's node, with one line for its address.
"""

import hashlib
import re

from components.node import files, kernel
from components.node.kernel import mounts
from components.node.run import attempt
from components.node.systemd import UNITS

EXPORTS_DIR = "/etc/exports.d"
OWN = f"{EXPORTS_DIR}/tailrack-"
OPTIONS = "rw,sync,secure,{root},no_subtree_check"
# On the share: names and addresses of the members, for a server that is not the head node.
LIST = ".tailrack/exports"
_MEMBER = re.compile(r"([a-z0-9][a-z0-9-]*) ((?:[0-9]{1,3}\.){3}[0-9]{1,3})")
GANESHA_FILE = "/etc/ganesha/ganesha.conf"
OUR_GANESHA = "# Written by tailrack"
# The cluster's ports that foreign NFS needs: those of a server, and of a client before version 4, which servers call
# back through rpcbind.
_SERVER_PORTS = (111, 2049, 20048)
_CLIENT_PORTS = (111,)
# Daemons that mount NFS, or need rpcbind for NIS.
_DAEMONS = ("automount", "ypbind")
_MAP = re.compile(r"[^#]*[A-Za-z0-9]:/")


def own_exports() -> list[str]:
    """Return the paths of the files that export the share to members."""
    paths = (f"{EXPORTS_DIR}/{name}" for name in files.names_in(EXPORTS_DIR))
    return [path for path in paths if path.startswith(OWN) and path.endswith(".exports")]


def export_file(node: str) -> str:
    """Return the path of the file that exports the share to a node."""
    return f"{OWN}{node}.exports"


def export_line(path: str, address: str | None, root: str = "root_squash") -> str:
    """Return the line that exports the share to one address; empty without a valid address."""
    return f"{path} {address}/32({OPTIONS.format(root=root)})" if address else ""


def member_list() -> str:
    """Return the members that this machine has exports for, in the form of LIST."""
    rows = ((path, clients((files.read(path) or "").partition(" ")[2])) for path in own_exports())
    names = ((path.removeprefix(OWN).removesuffix(".exports"), found) for path, found in rows if found)
    return "\n".join(f"{name} {found[0].removesuffix('/32')}" for name, found in names)


def export_to_members(path: str, head: str) -> None:
    """Export the share to the members in the head node's list, and to the head node, whose root has rights there.

    head   its name and address
    """
    lines = [head, *files.lines(f"{path}/{LIST}")]
    wanted: dict[str, str] = {}
    for found in filter(None, map(_MEMBER.fullmatch, lines)):
        root = "root_squash" if wanted else "no_root_squash"
        wanted.setdefault(export_file(found[1]), export_line(path, found[2], root))
    for file in own_exports():
        if file not in wanted:
            files.remove(file)
    for file, line in wanted.items():
        files.write(file, line)


def clients(line: str) -> list[str]:
    """Return the clients in an export line, without their options. An unclosed bracket ends the line."""
    return re.findall(r"(?<![^\s()])([^\s()]+)\([^)]*", line)


def foreign_nfs_ports() -> tuple[int, ...]:
    """Return the cluster's ports that foreign NFS needs here."""
    if foreign_exports() or foreign_ganesha():
        return _SERVER_PORTS
    return _CLIENT_PORTS if _has_old_nfs() else ()


def foreign_exports() -> list[str]:
    """Return this machine's exports to others than the cluster."""
    others = (path for path in _paths(EXPORTS_DIR, ".exports") if not path.startswith(OWN))
    lines = (line for path in ("/etc/exports", *others) for line in _lines(path))
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def ganesha_is_ours() -> bool:
    """Return whether tailrack has written nfs-ganesha's configuration."""
    return any(line.startswith(OUR_GANESHA) for line in _lines(GANESHA_FILE))


def foreign_ganesha() -> bool:
    """Return whether nfs-ganesha's configuration is neither tailrack's nor the package's."""
    text = files.read(files.followed(GANESHA_FILE))
    if text is None or ganesha_is_ours():
        return False
    digest = hashlib.md5(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()
    return digest not in attempt("dpkg-query", "-W", "-f=${Conffiles}", "nfs-ganesha", quiet=True).output


def _has_old_nfs() -> bool:
    """Return whether this machine mounts, or may mount, NFS before version 4, or needs rpcbind for something else.

    Mounts, fstab, units, automount's maps and NIS count. `nfs` without a version in its options falls back to 3.
    """
    return (
        any(mount.type == "nfs" and "vers=3" in mount.options for mount in mounts())
        or _runs(*_DAEMONS)
        or any(files.exists(f"{folder}/autofs.service") for folder in _paths(UNITS, ".wants"))
        or any(_is_old(line.split()) for line in fstab())
        or any(_MAP.match(line) for path in _maps() for line in _lines(path))
        or any("Type=nfs" in _lines(path) for path in _paths(UNITS, ".mount"))
    )


def fstab() -> list[str]:
    """Return the lines of /etc/fstab without its comments."""
    return [line for line in _lines("/etc/fstab") if not line.lstrip().startswith("#")]


def _is_old(fields: list[str]) -> bool:
    return fields[2:3] == ["nfs"] and not any("vers=4" in options for options in fields[3:4])


def _maps() -> list[str]:
    return [f"/etc/{name}" for name in files.names_in("/etc") if name.startswith("auto.")] + _paths(
        "/etc/auto.master.d", ""
    )


def _runs(*names: str) -> bool:
    """Return whether a process with one of these names exists."""
    processes = filter(str.isdigit, kernel.names_in("/proc"))
    return any(kernel.read(f"/proc/{process}/comm").rstrip("\n") in names for process in processes)


def _paths(folder: str, ending: str) -> list[str]:
    names = (name for name in files.names_in(folder) if name.endswith(ending) and not name.startswith("."))
    return [f"{folder}/{name}" for name in names]


def _lines(path: str) -> list[str]:
    return files.lines(files.followed(path))
