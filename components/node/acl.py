"""POSIX ACLs of files."""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from components.node import files

_ATTRIBUTE = "system.posix_acl_access"
_HEADER_BYTES = 4
_ENTRY = struct.Struct("<HHI")
_USER, _GROUP = 2, 8


class Acl(NamedTuple):
    """The permissions of named users and groups, as bits, by uid and gid."""

    users: dict[int, int]
    groups: dict[int, int]


def acl_of(path: str) -> Acl:
    """Return the entries of a path; none if its file system has no ACLs."""
    acl = Acl({}, {})
    try:
        data = os.getxattr(files.on_disk(path), _ATTRIBUTE)
    except OSError:
        return acl
    for tag, permissions, number in _ENTRY.iter_unpack(data[_HEADER_BYTES:]):
        if tag == _USER:
            acl.users[number] = permissions
        elif tag == _GROUP:
            acl.groups[number] = permissions
    return acl
