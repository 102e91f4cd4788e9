"""The table of mounts as the kernel writes it, and the names of units of paths as systemd makes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.node import files
from components.node.kernel import mounts, mounts_at
from components.node.systemd import name_of_path

TABLE = r"""22 28 0:21 / /proc rw,nosuid shared:12 - proc proc rw
28 1 8:1 / / rw,relatime shared:1 master:2 - ext4 /dev/sda1 rw,errors=remount-ro
40 28 0:40 / /srv/a\040b rw - nfs nas:/a\040b rw,vers=3
41 28 0:41 /x /srv/a\040b rw - nfs4 nas:/x rw,vers=4.2
"""


def test_mounts_have_their_places_types_and_options_and_the_one_on_top_is_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "root", str(tmp_path))
    assert mounts() == []
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(TABLE)
    assert [mount.target for mount in mounts()] == ["/proc", "/", "/srv/a b", "/srv/a b"]
    below, top = mounts_at("/srv/a b")
    assert (below.type, below.source, top.root, top.device) == ("nfs", "nas:/a b", "/x", "0:41")
    assert "vers=3" in below.options
    (first,) = mounts_at("/")
    assert first.options == {"rw", "relatime", "errors=remount-ro"}


# As systemd-escape --path prints them.
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/shared", "shared"),
        ("/srv/.x-y/a_b//c", r"srv-.x\x2dy-a_b-c"),
        ("/.hid", r"\x2ehid"),
        ("/data/a.b:c/", "data-a.b:c"),
        ("/", "-"),
    ],
)
def test_a_unit_of_a_path_has_the_name_that_systemd_looks_for(path: str, name: str) -> None:
    assert name_of_path(path) == name
