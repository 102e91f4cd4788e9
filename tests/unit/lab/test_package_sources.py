"""Where the lab's machines get their packages: from what this machine itself is set up for."""

import re
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lab.debian import Mirrors, find_mirrors
from lab.distributions import OTHERS
from lab.errors import LabError

PROJECT = Path(__file__).parents[3]


def write(apt: Path, name: str, text: str) -> None:
    """Write a file of a machine's /etc/apt."""
    (apt / name).parent.mkdir(parents=True, exist_ok=True)
    (apt / name).write_text(text)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """The address of a server of archives: Debian's with trixie, somebody else's with one, Debian's without."""
    folder = tmp_path / "web"
    for path, origin in (
        ("ubuntu/dists/noble", "Ubuntu"),
        ("ubuntu/dists/noble-security", "Ubuntu"),
        ("debian/dists/trixie", "Debian"),
        ("debian-security/dists/trixie-security", "Debian"),
        ("tools/dists/trixie", "Tools"),
        ("tools/dists/trixie-security", "Tools"),
        ("old/dists/bookworm", "Debian"),
    ):
        write(folder / path, "InRelease", f"-----BEGIN PGP SIGNED MESSAGE-----\n\nOrigin: {origin}\nLabel: {origin}\n")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_lab_uses_the_first_debian_mirror_with_the_release(tmp_path: Path, web: str) -> None:
    names = ("gone", "old", "tools", "debian")
    lines = [f"deb [trusted=yes] {web}/{name} bookworm main contrib" for name in names]
    lines += [
        f"deb {web}/tools bookworm-security main",
        "deb file:/srv/debian bookworm main",
        f"deb-src {web}/debian x main",
    ]
    write(tmp_path, "sources.list", "\n".join(lines))
    stanza = f"URIs: {web}/debian-security/\nSuites: bookworm-security\nComponents: main"
    write(
        tmp_path,
        "sources.list.d/security.sources",
        f"Types: deb deb-src\n{stanza}\n\nEnabled: no\nTypes: deb\n{stanza}\n",
    )
    mirrors = find_mirrors(tmp_path, "")
    assert mirrors == Mirrors(f"{web}/debian", f"{web}/debian-security")
    suites = ("debian trixie", "debian trixie-updates", "debian-security trixie-security")
    assert mirrors.sources_list.splitlines() == [f"deb {web}/{suite} main" for suite in suites]


def test_a_machine_without_security_updates_gets_machines_without_them(tmp_path: Path, web: str) -> None:
    write(tmp_path, "sources.list", f"deb {web}/debian bookworm main")
    mirrors = find_mirrors(tmp_path, "")
    assert mirrors == Mirrors(f"{web}/debian", None)
    assert "security" not in mirrors.sources_list


def test_a_machine_without_a_debian_mirror_asks_for_one_in_one_line(tmp_path: Path, web: str) -> None:
    write(tmp_path, "sources.list", f"deb {web}/tools noble main\ndeb {web}/old noble main")
    with pytest.raises(LabError, match=r"TAILRACK_MIRROR=URL") as refused:
        find_mirrors(tmp_path, "")
    assert "\n" not in str(refused.value)
    assert find_mirrors(tmp_path, "http://m.example/debian/") == Mirrors("http://m.example/debian", None)


def test_the_mirror_of_the_environment_comes_first(tmp_path: Path, web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "sources.list", f"deb {web}/debian bookworm main\ndeb {web}/debian-security bookworm-security main")
    monkeypatch.setenv("TAILRACK_MIRROR", "http://m.example/debian")
    assert find_mirrors(tmp_path) == Mirrors("http://m.example/debian", f"{web}/debian-security")


def test_machines_of_ubuntu_have_its_archive_with_the_security_updates_that_are_in_it(tmp_path: Path, web: str) -> None:
    write(tmp_path, "sources.list", f"deb {web}/debian trixie main\ndeb {web}/debian-security trixie-security main")
    with pytest.raises(LabError, match=r"TAILRACK_UBUNTU_MIRROR=URL"):
        find_mirrors(tmp_path, "", OTHERS["ubuntu-24.04"])
    listed = find_mirrors(tmp_path, f"{web}/ubuntu", OTHERS["ubuntu-24.04"]).sources_list.splitlines()
    suites = ("noble", "noble-updates", "noble-security")
    assert listed == [f"deb {web}/ubuntu {suite} main universe" for suite in suites]


MIRROR_HOST = re.compile(
    r"\b(deb|ftp|security|snapshot)\.debian\.org|\b(archive|security|ports)\.ubuntu\.com|\bpypi\.org|"
    r"\bfiles\.pythonhosted\.org|\bproxy\.golang\.org|\bregistry\.npmjs\.org"
)


def test_no_file_of_the_repository_names_the_host_of_a_package_mirror() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True)
    files = [PROJECT / name for name in listed.stdout.split("\0") if name]
    assert len(files) > 100
    found = [
        f"{file.relative_to(PROJECT)}: {host[0]}"
        for file in files
        if file.is_file() and (host := MIRROR_HOST.search(file.read_text(encoding="utf-8", errors="replace")))
    ]
    assert found == []
