"""What the lab's images are made of: digests, programs."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from lab import binaries, images
from lab.errors import LabError
from lab.identity import CHECKOUT


def test_a_digest_tells_names_contents_and_texts_apart(tmp_path: Path) -> None:
    def of(name: str, text: str, *more: str) -> str:
        folder = tmp_path / f"{name}-{text}-{len(more)}"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        return binaries.digest([folder / name], *more)

    found = [of("a", "x"), of("b", "x"), of("a", "y"), of("a", "x", "z"), of("a", "xz")]
    assert len(set(found)) == len(found)
    assert of("a", "x") == found[0]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the Go module's own files, which the code under test then takes for the real ones."""
    for file in binaries.MODULE.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(binaries, "MODULE", tmp_path)
    return tmp_path


def test_a_change_of_the_control_server_leaves_the_node_images_alone(module: Path) -> None:
    before = images.tags()
    (module / "main.go").write_text("package main\n")
    after = images.tags()
    assert (after.node, after.bare) == (before.node, before.bare)
    assert after.control != before.control


def test_a_new_version_of_tailscale_changes_every_image(module: Path) -> None:
    before = images.tags()
    with (module / "go.sum").open("a") as file:
        file.write("tailscale.com v9.9.9 h1:x\n")
    after = images.tags()
    assert not {before.node, before.bare, before.control} & {after.node, after.bare, after.control}


def test_the_control_servers_tests_are_no_part_of_it(module: Path) -> None:
    before = images.tags()
    (module / "more_test.go").write_text("package main\n")
    assert images.tags() == before


def test_without_go_the_error_names_the_package_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match=r"install Go 1\.26 or newer"):
        binaries.build(tmp_path / "go")


def test_programs_that_are_there_are_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "done").touch()
    assert binaries.build(tmp_path).tailscaled == tmp_path / "tailscaled"


def test_go_builds_the_programs_while_the_machines_packages_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each of the two begins only when the other has begun: one after the other, this would end at the limit.
    both = threading.Barrier(2, timeout=10)
    built: list[str] = []

    def packages(*_: object) -> dict[str, str]:
        both.wait()
        return dict.fromkeys(("system", "cluster", "helper"), "")

    def programs(_cache: Path) -> binaries.Binaries:
        both.wait()
        return binaries.Binaries(*[tmp_path] * 5)

    monkeypatch.setattr(images, "install_packages", packages)
    monkeypatch.setattr(binaries, "ready", programs)
    monkeypatch.setattr(images, "_exists", lambda *_: False)
    monkeypatch.setattr(images, "_build_node", lambda _client, tag, *_: built.append(tag))
    monkeypatch.setattr(images, "_build_control", lambda _client, tag, *_: built.append(tag))
    known = images.tags()
    images.ensure_images(cast("Any", None), [known.node, known.control], tmp_path)
    assert built == [known.node, known.control]


def test_the_programs_are_built_by_python_alone_before_any_of_its_packages_is_there() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); import lab.binaries"],
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
