"""A program of several modules in one text: what it imports, reads and says, without our files beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from components.roles.python_program import python_program

SIZES = "components.validation.sizes"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    program = folder / "program.py"
    program.write_text(text, encoding="utf-8")
    # -I: neither this folder nor the project is where it looks for modules.
    command = [sys.executable, "-I", str(program)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def with_sizes(commands: str, *data: str) -> str:
    """A program that has a small module at hand, and does something else than to call its `main`."""
    text = python_program(SIZES, "None", *data)
    return text[: text.index(f"from {SIZES}")] + f"import {SIZES} as sizes\n{commands}\n"


def test_a_program_finds_its_modules_and_ends_as_its_main_says(folder: Path) -> None:
    done = run(folder, python_program("components.roles.fabric.fabric", "['no such word']"))
    assert done.returncode == 2
    assert done.stderr.startswith("fabric.py interfaces ")


def test_a_file_that_comes_with_a_program_is_read_by_it(folder: Path) -> None:
    data = "components/validation/floors.csv"
    words = "import pkgutil; sys.stdout.buffer.write(pkgutil.get_data('components.validation', 'floors.csv'))"
    assert run(folder, with_sizes(words, data)).stdout == Path(data).read_text(encoding="utf-8")


def test_a_failure_names_the_line_of_the_module_where_it_happened(folder: Path) -> None:
    said = run(folder, with_sizes("sizes.parse_size('x')")).stderr
    assert f'File "{SIZES.replace(".", "/")}.py", line ' in said


def test_a_module_that_nobody_packed_is_looked_for_as_ever(folder: Path) -> None:
    done = run(folder, with_sizes("import components.roles.nothing"))
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'components.roles'"


def test_a_program_starts_without_what_only_its_loader_would_need(folder: Path) -> None:
    heavy = "{'importlib.abc', 'importlib.util', 'pathlib', 'tempfile'}"
    assert run(folder, with_sizes(f"print({heavy} & {{*sys.modules}})")).stdout == "set()\n"
