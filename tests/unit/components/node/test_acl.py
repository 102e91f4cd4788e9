"""The entries of an ACL, as the kernel has them."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import pytest

from components.node.folders import Acl, acl_of


def test_named_users_and_groups_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    none = 2**32 - 1
    rows = [(1, 7, none), (2, 0, 1500), (2, 5, 7001), (4, 5, none), (8, 4, 27), (16, 5, none), (32, 5, none)]
    data = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in rows)
    monkeypatch.setattr(os, "getxattr", lambda *_: data)
    assert acl_of("/x") == Acl({1500: 0, 7001: 5}, {27: 4})


def test_a_path_without_a_list_has_no_entries(tmp_path: Path) -> None:
    assert acl_of(str(tmp_path)) == Acl({}, {})
    assert not any(acl_of(str(tmp_path)))


def test_the_list_that_setfacl_writes_is_read(tmp_path: Path) -> None:
    subprocess.run(["setfacl", "-m", "u:1500:---", "-m", "g:27:r-x", str(tmp_path)], check=True)
    assert acl_of(str(tmp_path)) == Acl({1500: 0}, {27: 5})
