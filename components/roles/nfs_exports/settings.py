"""The share: the section `storage`, the folders that it may be, and how its two paths may lie."""

import re
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator

from components.settings.draft import Draft
from components.settings.problems import Report
from components.settings.section import Section, key
from components.settings.types import refuse, words

# A share mounted on, or made of, one of these hides or publishes part of the system.
SYSTEM_FOLDERS = words("/ /bin /boot /dev /etc /home /lib /lib64 /proc /root /run /sbin /sys /tmp /usr /var /var/lib")
OFF_LIMITS = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr")
_FIX = "write an absolute path of plain letters, digits, '.', '_' and '-', outside the system's folders"


def _folder(value: str) -> str:
    if not value.startswith("/"):
        refuse("is not an absolute path")
    if not re.fullmatch(r"/[A-Za-z0-9._/-]*", value) or ".." in value.split("/"):
        refuse("has '..', a space or a special character in it", "/etc/exports and systemd would read another path")
    folder = str(PurePosixPath("/" + value.strip("/")))
    if folder in SYSTEM_FOLDERS or folder.startswith(tuple(f"{top}/" for top in OFF_LIMITS)):
        refuse("is a folder of the system itself", "it would be hidden by the mount, or open to every node")
    return folder


Folder = Annotated[str, AfterValidator(_folder)]


class Storage(Section):
    """The share: served by the head node over NFS, mounted by every node."""

    path: Folder = key(
        "folder on the head node that is shared",
        f"an absolute path; the head node could not serve the share; {_FIX}",
        default="/export/shared",
    )
    mount: Folder = key(
        "where every node mounts it; homes are in its folder `home`",
        f"an absolute path; the nodes could not mount the share; {_FIX}",
        default="/shared",
    )


def check_storage(storage: Draft, report: Report) -> None:
    """Report a share that lies within its own mount, or around it."""
    path, mount = storage.value("path"), storage.value("mount")
    if not isinstance(path, str) or not isinstance(mount, str):
        return
    if PurePosixPath(path).is_relative_to(mount) or PurePosixPath(mount).is_relative_to(path):
        blamed, other = ("path", "mount") if {"path", "mount"} & storage.raw.keys() == {"path"} else ("mount", "path")
        value, against = (report.value(storage.path, storage.value(key)) for key in (blamed, other))
        what = f"{value} {'is' if path == mount else 'lies within, or around,'} {against}, the {other} of the share"
        breaks = "the head node would mount the share over itself and hang"
        report.add(storage.at(blamed), what, breaks, "keep the two apart, such as /export/shared and /shared")
