"""What the lab's images are made of: digests, programs."""

import subprocess
import sys
from pathlib import Path

import pytest

from lab import programs
from lab.errors import LabError
from lab.identity import CHECKOUT


def test_a_digest_tells_names_contents_and_texts_apart(tmp_path: Path) -> None:
    def of(name: str, text: str, *more: str) -> str:
        folder = tmp_path / f"{name}-{text}-{len(more)}"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        return programs.digest([folder / name], *more)

    found = [of("a", "x"), of("b", "x"), of("a", "y"), of("a", "x", "z"), of("a", "xz")]
    assert len(set(found)) == len(found)
    assert of("a", "x") == found[0]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the Go module's own files, which the code under test then takes for the real ones."""
    for file in programs.MODULE.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(programs, "MODULE", tmp_path)
    return tmp_path


def test_without_go_the_error_names_the_package_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match=r"install Go 1\.26 or newer"):
        programs.build(tmp_path / "go")


def test_the_programs_are_built_by_python_alone_before_any_of_its_packages_is_there() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); import lab.programs"],
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
