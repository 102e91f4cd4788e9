"""The key `storage.mounts`: other file systems on the nodes of some sites."""

import re
from collections.abc import Sequence
from itertools import combinations
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from components.settings.network_names import NFS, PRESENT, feature_of
from components.settings.problems import Report, Stack, show_names
from components.settings.rules import check_kinds, check_sites
from components.settings.section import Help, Section, key
from components.settings.types import FOLDER, HOST, SiteNames, refuse, word_set

# Folders of the system, with everything in them.
_SYSTEM = word_set("bin boot dev etc lib lib32 lib64 libx32 lost+found proc root run sbin snap sys tmp usr var")
# A mount may be in them, but may not hide them.
_AROUND = word_set("home media mnt opt srv")
_IPV6 = r"\[[0-9A-Fa-f:.]{2,45}\]"
_FIX_PATH = "write a path such as /data or /mnt/data"
_FIX_OPTIONS = "write some of [noatime, nconnect=8, rsize=1048576]; read_only, nosuid and nodev are set by tailrack"
_FLAGS = word_set("ac hard lock noac noatime nocto nodiratime noexec nolock noresvport nosharecache relatime resvport")
_SOFT = word_set("soft softerr")
# Options with a number: the least and the greatest one.
_NUMBERS = dict.fromkeys(("acregmin", "acregmax", "acdirmin", "acdirmax", "actimeo"), (0, 86400))
_NUMBERS |= dict.fromkeys(("rsize", "wsize"), (1024, 1048576))
_NUMBERS |= {"nconnect": (1, 16), "port": (1, 65_535), "retrans": (0, 100), "timeo": (1, 6_000)}
_WORDS = {"lookupcache": "all none pos positive", "proto": "rdma tcp tcp6", "sec": "krb5 krb5i krb5p sys"}
_WORDS |= dict.fromkeys(("nfsvers", "vers"), "4 4.0 4.1 4.2")


def _path(value: str) -> str:
    if not re.fullmatch(FOLDER, value):
        refuse("is not an absolute path of plain letters, digits, '.', '_' and '-'", "systemd would read another path")
    top, *below = value.strip("/").split("/")
    if top in _SYSTEM or (top in _AROUND and not below):
        refuse("is a folder of the system", "the mount would hide the files there")
    return value


def _option(value: str) -> str:
    name, equals, text = value.partition("=")
    if name in _FLAGS | _SOFT | {"sync"} and not equals:
        return value
    if name in _WORDS:
        if text not in (words := _WORDS[name].split()):
            refuse(f"has none of the values {', '.join(words)}")
        return value
    if name not in _NUMBERS:
        refuse("is not an NFS option that tailrack allows")
    least, most = _NUMBERS[name]
    if not re.fullmatch(r"[0-9]{1,7}", text) or not least <= int(text) <= most:
        refuse(f"is not {name}= with a whole number from {least} to {most}")
    return f"{name}={int(text)}"


Path = Annotated[str, Field(max_length=100), AfterValidator(_path)]
Source = Annotated[
    str,
    Field(max_length=400, pattern=rf"^({HOST}|{_IPV6}):(/|{FOLDER})$"),
    Help(
        "an NFS server, a colon and its folder",
        f'write "10.0.0.5:/export", with IPv6 in brackets; type: {PRESENT} has none',
    ),
]
Type = Annotated[
    Literal["nfs4", "present"],
    Help(
        fix=f"write {NFS}; or mount it yourself, and write {PRESENT}, which only checks it",
        breaks="NFS version 3 needs rpcbind, which the cluster turns off, and other types need their own software",
    ),
]
Option = Annotated[str, Field(max_length=40), AfterValidator(_option)]


class Mount(Section):
    """A file system on the nodes of some sites."""

    path: Path = key("an absolute path of at most 100 characters", _FIX_PATH)
    """The mount point. Nodes where it works have a feature, such as `mount-data` for /data."""
    type: Type = "nfs4"
    """`nfs4`: an NFS server, version 4, mounted by tailrack; `present`: mounted by others, only checked."""
    source: Source | None = None
    """The server and its folder, such as `"10.0.0.5:/export"`; only for nfs4."""
    sites: SiteNames | None = key(min_length=1, default=None)
    """The sites whose nodes have it; default: all."""
    read_only: bool = False
    """Mount it read-only. Otherwise a full or read-only file system is a problem."""
    options: tuple[Option, ...] = key("a list of NFS options", _FIX_OPTIONS, max_length=20, default=())
    """More NFS options, such as `[noatime, nconnect=8]`; only for nfs4."""
    required: bool = False
    """A node without it fails its step and is drained. Otherwise it only loses the feature."""
    tailnet: bool = False
    """The server is reached over the tailnet, so mount it after that; only for nfs4."""


Mounts = Annotated[
    tuple[Mount, ...],
    Field(max_length=32, description="Other file systems, on the nodes of some sites."),
    Help(fix='write [{path: /data, source: "10.0.0.5:/export", sites: [rack]}]'),
]


class PoolStorage(Section):
    """The mounts of a pool's machines, instead of its cluster's."""

    mounts: Mounts = ()

    def check(self, stack: Stack, report: Report) -> None:
        check_mounts(self.mounts, stack, report)


def check_mounts(mounts: Sequence[Mount], stack: Stack, report: Report) -> None:
    """Report mounts that contradict each other or the rest of the config."""
    logins = [login for login in stack.logins if re.fullmatch(r"[A-Za-z0-9_.-]+", login)]
    taken = {f"/home/{login}": "the home of the account that tailrack logs in with" for login in logins}
    taken |= dict.fromkeys(stack.share, "the cluster's share")
    if (scratch := stack.config.scratch.folder) is not None:
        taken[scratch] = "the folder of jobs' scratch space"
    for mount in mounts:
        _check_keys(mount, report)
        for folder, whose in taken.items():
            if relation := relation_of(mount.path, folder):
                problem = f"{relation} {report.value(report.at(mount), folder)}, {whose}"
                report.bad((mount, "path"), problem, "one would hide the other's files", _FIX_PATH)
        check_sites(mount, "sites", "no node would have the mount", stack, report)
    for first, second in combinations(mounts, 2):
        _check_pair(first, second, report)
    names = {feature_of(mount.path): mount.path for mount in mounts}
    for section in stack.sections if names else ():
        for index, feature in enumerate(getattr(section, "features", ())):
            if feature in names:
                breaks = f"jobs that ask for the mount {names[feature]} would run on nodes without it"
                report.bad((section, "features", index), "is a mount's feature", breaks, "rename it")


def _check_keys(mount: Mount, report: Report) -> None:
    """Report keys that do not fit the mount's type."""
    breaks = "it would have no effect, because tailrack does not mount it"
    check_kinds(mount, mount.type, {"options": (NFS,), "tailnet": (NFS,)}, breaks, report, "type")
    check_kinds(mount, mount.type, {"source": (NFS,)}, breaks, report, "type", "the server would be unknown")
    names = [option.partition("=")[0] for option in mount.options]
    aliases = [{"vers": "nfsvers"}.get(name, name) for name in names]
    for index, name in enumerate(names):
        place = (mount, "options", index)
        if aliases[index] in aliases[:index]:
            report.bad(place, "is in the list twice", "one would win", "remove one of them")
        if name in _SOFT and not mount.read_only:
            breaks = "files would be damaged when the server does not answer for a moment"
            report.bad(place, "without read_only", breaks, "remove it, or set read_only: true")


def relation_of(path: str, other: str) -> str:
    """Return how one of two paths hides the other, for running text; empty if neither does."""
    around = PurePosixPath(path).is_relative_to(other) or PurePosixPath(other).is_relative_to(path)
    return "is" if path == other else "is inside or around" * around


def _check_pair(first: Mount, second: Mount, report: Report) -> None:
    path, place, common = second.path, (second, "path"), {*(first.sites or ())} & {*(second.sites or ())}
    if (common or not (first.sites and second.sites)) and (relation := relation_of(path, first.path)):
        where = f" on {show_names(common)}" if common else ""
        problem = f"{relation} the path of {report.at(first)}{where}"
        report.bad(place, problem, "one would hide the other's files", "write another path, or other sites")
    elif path != first.path and feature_of(path) == feature_of(first.path):
        problem = f"has the same feature as {report.at(first)} ({feature_of(path)})"
        report.bad(place, problem, "jobs could not ask for one of the two", "write another path")
