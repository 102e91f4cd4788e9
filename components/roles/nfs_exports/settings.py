"""The section `storage`: the share's folder and mount point."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field

from components.roles.mounts.settings import Mounts
from components.roles.users.settings import RESERVED_USERS
from components.settings.problems import Report
from components.settings.section import Help, Section
from components.settings.types import refuse, word_set

# Folders that may be shared, with the folders in them. Folders of AROUND may only contain shared folders.
OWN_FOLDERS = word_set(
    """cluster data datasets export exports lustre nfs projects raid scratch share shared storage volume volumes work"""
)
AROUND = word_set("home media mnt opt srv")
LONGEST = 200  # characters
_FIX = (
    f"write /{', /'.join(sorted(OWN_FOLDERS))} or a folder in it, or a folder below "
    f"/{', /'.join(sorted(AROUND))}, of plain letters, digits, '.', '_' and '-'"
)


def _folder(value: str) -> str:
    if not value.startswith("/"):
        refuse("is not an absolute path")
    if not re.fullmatch(r"/[A-Za-z0-9._/-]*", value) or ".." in value.split("/"):
        refuse("contains '..', a space or a special character", "/etc/exports and systemd would read another path")
    folder = str(PurePosixPath("/" + value.strip("/")))
    top, *below = folder.strip("/").split("/")
    if top not in OWN_FOLDERS and not (top in AROUND and below):
        refuse(
            "is not a folder that may be shared, and may belong to the system",
            "the mount would hide it, or every node could access it",
        )
    if top == "home" and below[0] in RESERVED_USERS:
        refuse("is the home of a login account", "the mount would hide its keys, or every node could access them")
    return folder


Folder = Annotated[str, Field(max_length=LONGEST), AfterValidator(_folder), Help("an absolute path", _FIX)]


class Storage(Section):
    """The share: the head node serves it over NFS, every node mounts it."""

    path: Folder = "/export/shared"
    """The shared folder on the head node."""
    mount: Folder = "/shared"
    """The mount point on every node; homes are in its folder `home`."""
    mounts: Mounts = ()


def check_storage(storage: Storage, logins: Mapping[str, str], report: Report) -> None:
    """Report a share in the home of a login account, or around its own mount point.

    logins   the machines that tailrack logs in to, by account
    """
    for name, folder in (("path", storage.path), ("mount", storage.mount)):
        for login in set(PurePosixPath(folder).parts[2:3]) & logins.keys():
            if PurePosixPath(folder).is_relative_to(f"/home/{login}"):
                problem = "is in the home of the account that tailrack logs in with"
                breaks = f"the mount would hide the keys that open {logins[login]}, or every node could access them"
                report.bad((storage, name), problem, breaks, _FIX)
    path, mount = storage.path, storage.mount
    if PurePosixPath(path).is_relative_to(mount) or PurePosixPath(mount).is_relative_to(path):
        only_path = {"path", "mount"} & storage.model_fields_set == {"path"}
        blamed, partner = ("path", "mount") if only_path else ("mount", "path")
        relation = "is" if path == mount else "is inside or around"
        other = report.value(report.at(storage), getattr(storage, partner))
        breaks = "the head node would mount the share over itself and hang"
        fix = "use separate folders, such as /export/shared and /shared"
        report.bad((storage, blamed), f"{relation} {other}, the {partner} of the share", breaks, fix)
