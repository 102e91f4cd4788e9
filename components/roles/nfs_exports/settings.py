"""The share: the section `storage`, the folders that it may be, and how its two paths may lie."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field

from components.roles.users.settings import RESERVED_USERS
from components.settings.draft import Draft
from components.settings.problems import Report
from components.settings.section import Section, key
from components.settings.types import refuse, words

# What may be shared: one of these or a folder in it, and what lies in folders that hold nothing else of the machine's.
OWN_FOLDERS = words(
    """cluster data datasets export exports lustre nfs projects raid scratch share shared storage volume volumes work"""
)
AROUND = words("home media mnt opt srv")
LONGEST = 200  # characters
_FIX = (
    f"write /{', /'.join(sorted(OWN_FOLDERS))} or a folder in it, or a folder below "
    f"/{', /'.join(sorted(AROUND))}, of plain letters, digits, '.', '_' and '-'"
)


def _folder(value: str) -> str:
    if not value.startswith("/"):
        refuse("is not an absolute path")
    if not re.fullmatch(r"/[A-Za-z0-9._/-]*", value) or ".." in value.split("/"):
        refuse("has '..', a space or a special character in it", "/etc/exports and systemd would read another path")
    folder = str(PurePosixPath("/" + value.strip("/")))
    top, *below = folder.strip("/").split("/")
    if top not in OWN_FOLDERS and not (top in AROUND and below):
        refuse(
            "is none of the folders that may be shared, and may be a folder of the system itself",
            "it would be hidden by the mount, or open to every node",
        )
    if top == "home" and below[0] in RESERVED_USERS:
        refuse("is the home of a login", "its keys would be hidden by the mount, or open to every node")
    return folder


Folder = Annotated[str, Field(max_length=LONGEST), AfterValidator(_folder)]


class Storage(Section):
    """The share: served by the head node over NFS, mounted by every node."""

    path: Folder = key(
        "folder on the head node that is shared",
        wants="an absolute path",
        breaks="the head node could not serve the share",
        fix=f"{_FIX}",
        default="/export/shared",
    )
    mount: Folder = key(
        "where every node mounts it; homes are in its folder `home`",
        wants="an absolute path",
        breaks="the nodes could not mount the share",
        fix=f"{_FIX}",
        default="/shared",
    )


def check_storage(storage: Draft, logins: Mapping[str, str], report: Report) -> None:
    """Report a share in the home of an account that the program logs in with (`logins`: where), or around its mount."""
    for name in ("path", "mount"):
        folder = storage.value(name)
        for login in set(PurePosixPath(folder).parts[2:3]) & logins.keys() if isinstance(folder, str) else ():
            if PurePosixPath(str(folder)).is_relative_to(f"/home/{login}"):
                at = storage.at(name)
                what = f"{report.value(at, folder)} is in the home of the account that the program logs in with"
                breaks = f"the keys that open {logins[login]} would be hidden by the mount, or open to every node"
                report.add(at, what, breaks, _FIX)
    path, mount = storage.value("path"), storage.value("mount")
    if not isinstance(path, str) or not isinstance(mount, str):
        return
    if PurePosixPath(path).is_relative_to(mount) or PurePosixPath(mount).is_relative_to(path):
        blamed, other = ("path", "mount") if {"path", "mount"} & storage.raw.keys() == {"path"} else ("mount", "path")
        value, against = (report.value(storage.path, storage.value(key)) for key in (blamed, other))
        what = f"{value} {'is' if path == mount else 'lies within, or around,'} {against}, the {other} of the share"
        breaks = "the head node would mount the share over itself and hang"
        report.add(storage.at(blamed), what, breaks, "keep the two apart, such as /export/shared and /shared")
