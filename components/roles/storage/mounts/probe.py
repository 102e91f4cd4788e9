"""The mounts that the config wants, and whether they answer."""

import json
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from components.node import files, kernel, systemd
from components.node.accounts import as_user, owns_folder
from components.node.kernel import Mount, mounts
from components.node.run import Ended, attempt
from components.settings.network_names import NFS, feature_of

# The node's list, which every account may read.
LIST = "/etc/tailrack/mounts.json"
ANSWER_SECONDS = 10
_CONNECT_SECONDS = 3
_NAME_SECONDS = 5
# The file system is full below both limits.
_FULL_BYTES, _FULL_PART = 64 * 2**20, 100
_STAT = ("stat", "-f", "-c", "%S %b %a %c %d", "--")
# Read a name in the folder, because file systems of users answer `stat` without their server.
_READ = ("-maxdepth", "1", "-mindepth", "1", "-quit")
_WRITE = ".tailrack-XXXXXXXX"
_TIMED_OUT = 124
_LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "ramfs", "overlay", "squashfs")


@dataclass(frozen=True)
class Wanted:
    """A mount of the config.

    type      NFS, or PRESENT for a mount that others make
    source    the server and its folder; empty for PRESENT
    options   more options of mount(8), separated by commas
    required  whether no job can run without it
    tailnet   whether the server is reached over the tailnet
    sites     the sites whose nodes have it, separated by commas; empty for all
    home      a user's home in the mount of the homes; empty for other mounts
    """

    path: str
    type: str
    source: str
    options: str
    read_only: bool
    required: bool
    tailnet: bool
    sites: str
    home: str = ""

    @property
    def feature(self) -> str:
        return feature_of(self.path)

    def is_at(self, site: str) -> bool:
        """Return whether the nodes of a site have it."""
        return not self.sites or site in self.sites.split(",")


@dataclass(frozen=True)
class NodeList:
    """The mounts of a node. user: the account that tries to write."""

    user: str
    mounts: tuple[Wanted, ...]


def read_list() -> NodeList:
    """Return the node's list; an empty one if it does not exist."""
    content: Any = json.loads(files.read(LIST) or "{}")
    return NodeList(content.get("user", ""), tuple(Wanted(**row) for row in content.get("mounts", ())))


def write_list(wanted: NodeList) -> None:
    """Write the node's list."""
    files.write(LIST, json.dumps(asdict(wanted), indent=1))


@dataclass(frozen=True)
class Problem:
    """A mount's problem: a text that follows its path, and what to do."""

    text: str
    remedy: str


def check_all(wanted: Sequence[Wanted]) -> Mapping[str, Problem]:
    """Check mounts at the same time. Return the problems by path."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max(len(wanted), 1)) as pool:
        answers = list(pool.map(lambda mount: _ask(mount.path), wanted))
        # Only now are automounts mounted.
        present = mounts()
        problems = list(pool.map(lambda mount, answer: _problem(mount, answer, present), wanted, answers))
    return {mount.path: problem for mount, problem in zip(wanted, problems, strict=True) if problem}


def answers(path: str) -> bool:
    """Return whether a mount answers within the limit."""
    return _ask(path).status != _TIMED_OUT


def is_mounted(path: str) -> bool:
    """Return whether something is mounted at a path, besides systemd's automount."""
    return any(mount.target == path and mount.type != "autofs" for mount in mounts())


def write_problem(mount: Wanted, user: str) -> Problem | None:
    """Create and remove a file as a user. Return the problem if the file system is full or read-only for everyone.

    A home must be the user's own; its mode and the user's quota are the user's affair.
    """
    path = files.on_disk(mount.home or mount.path)
    made = as_user(user, "mktemp", "-p", path, _WRITE, limit=ANSWER_SECONDS)
    name = made.output.strip()
    if made.ok and name.startswith(f"{path}/{_WRITE[:10]}"):
        as_user(user, "rm", "-f", "--", name, limit=ANSWER_SECONDS)
    if "Read-only file system" in made.errors:
        return Problem("is read-only on its server", f"export it for writing, or {_read_only(mount)}")
    if mount.home and not made.ok and not owns_folder(user, mount.home, ANSWER_SECONDS):
        remedy = f"see 'ls -ld {mount.home}': all machines need the same file system there"
        return Problem(f"has no home {mount.home} that belongs to user {user}", remedy)
    if "No space left" in made.errors or ("quota exceeded" in made.errors and not mount.home):
        return Problem(f"is full for user {user}", f"free space there, or {_read_only(mount)}")
    return None


def _ask(path: str) -> Ended:
    """Ask for the size of the file system, which no cache answers, and read a name in it.

    A command of an earlier check that still hangs is answer enough.
    """
    place = files.on_disk(path)
    stat, find = (*_STAT, place), ("find", place, *_READ)
    if _hangs(stat, find):
        return Ended(_TIMED_OUT, "")
    size = _run(*stat)
    names = _run(*find) if size.ok else size
    # A server may refuse root.
    return size if "Permission denied" in names.errors else names._replace(output=size.output)


def _run(*command: str) -> Ended:
    return attempt(*command, limit=ANSWER_SECONDS, environment={"LC_ALL": "C"}, keep_errors=True)


def _hangs(*commands: Sequence[str]) -> bool:
    """Return whether a process of an earlier check still waits, so that such processes do not add up."""
    lines = {"\0".join([*command, ""]) for command in commands}
    return any(kernel.read(f"/proc/{name}/cmdline") in lines for name in kernel.names_in("/proc") if name.isdigit())


def _problem(mount: Wanted, answer: Ended, present: Sequence[Mount]) -> Problem | None:
    if answer.status == _TIMED_OUT:
        return _silent(mount, f"does not answer within {ANSWER_SECONDS} s")
    if not answer.ok:
        reason = answer.errors.strip().rpartition(": ")[2][:100] or f"status {answer.status}"
        return _silent(mount, f"cannot be read ({reason})")
    top = _mount_of(mount, present)
    if top is None:
        return _silent(mount, "is not mounted")
    if mount.type == NFS and top.source != mount.source:
        return Problem(f"is mounted from {top.source}, not from {mount.source}", _when_free(mount))
    if mount.type == NFS and mount.read_only and "ro" not in top.options:
        return Problem("is still mounted for writing", _when_free(mount))
    return None if mount.read_only else _space(mount, top, answer.output)


def _mount_of(mount: Wanted, present: Sequence[Mount]) -> Mount | None:
    """Return the mount at the path; for a mount of others also one above it, but not the system's own disk.

    Homes need one that is not local: else they would be made on a disk such as /var while the real one is missing.
    """
    found = [one for one in present if one.target == mount.path and one.type != "autofs"]
    if mount.type != NFS and not found:
        above = [one for one in present if PurePosixPath(mount.path).is_relative_to(one.target)]
        found = [one for one in above if len(one.target) == max(len(other.target) for other in above)]
        unfit = ("autofs", *(_LOCAL if mount.home else ()))
        found = [one for one in found if one.target != "/" and one.type not in unfit]
    return found[-1] if found else None


def _space(mount: Wanted, top: Mount, numbers: str) -> Problem | None:
    if "ro" in top.options:
        return Problem("is read-only", f"see 'findmnt {mount.path}' on the node, or {_read_only(mount)}")
    size, total, free, inodes, free_inodes = ([int(word) for word in numbers.split()] + [0] * 5)[:5]
    if total and free * size < _FULL_BYTES and free * _FULL_PART < total:
        return Problem(f"is full: {free * size >> 20} MiB are free", f"free space there, or {_read_only(mount)}")
    if inodes and not free_inodes:
        return Problem("has no room for more files", f"remove files there, or {_read_only(mount)}")
    return None


def _read_only(mount: Wanted) -> str:
    return f"set read_only: true for {mount.path} in tailrack:storage.mounts"


def _when_free(mount: Wanted) -> str:
    return f"wait for jobs that use it (see 'fuser -vm {mount.path}'); a minute after they end, it is mounted again"


def _silent(mount: Wanted, text: str) -> Problem:
    """Return the problem of a mount that does not work. `text`: the symptom."""
    if mount.type != NFS:
        return Problem(text, f"{mount.path} is mounted by its provider: see 'findmnt {mount.path}' on the node")
    host, reason = server_of(mount.source), _unreachable(mount)
    if reason:
        return Problem(f"{text}: {reason}", f"check that {host} is up and this node may connect, or correct its source")
    unit = f"{systemd.name_of_path(mount.path)}.mount"
    return Problem(text, f"see 'journalctl -u {unit}' on the node, and the exports of {host}")


def server_of(source: str) -> str:
    """Return the host of a source, without the brackets of an IPv6 address."""
    return source.rpartition(":/")[0].strip("[]")


def _unreachable(mount: Wanted) -> str:
    """Return why the server's NFS port cannot be reached; empty if it can."""
    host = server_of(mount.source)
    port = re.search(r"(?:^|,)port=([0-9]+)", mount.options)
    resolved = attempt("getent", "ahosts", host, limit=_NAME_SECONDS, quiet=True)
    address = resolved.output.split()[:1]
    if not resolved.ok or not address:
        return f"the name {host} does not resolve"
    number = int(port[1]) if port else 2049
    try:
        socket.create_connection((address[0], number), _CONNECT_SECONDS).close()
    except OSError as error:
        return f"port {number} of {host} does not answer ({error.strerror or 'timed out'})"
    return ""
