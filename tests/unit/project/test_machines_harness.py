"""What the tests on virtual machines stand on, as far as it needs none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.machines import image, machines
from tests.machines.image import Image

HERE = Path(image.__file__).parent
DIES = "[    3.1] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000000"


def qemu(folder: Path, then: str) -> list[str]:
    """A QEMU that does something with its console, $console."""
    program = folder / "qemu"
    program.write_text(f'#!/bin/bash\nconsole=$(grep -o "file:[^ ]*" <<<"$*")\nconsole=${{console#file:}}\n{then}\n')
    program.chmod(0o755)
    return [str(program)]


@pytest.mark.parametrize(
    ("then", "used"),
    [
        (f"echo '{DIES}' >$console", True),
        ("echo 'Decompressing Linux...' >$console; exec sleep 60", False),
        ("echo 'Decompressing Linux...' >$console", False),
        ("exit 1", False),
    ],
    ids=["reaches its first process", "hangs", "is reset", "does not start"],
)
def test_kvm_is_used_where_a_stock_kernel_reaches_its_first_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str, used: bool
) -> None:
    monkeypatch.setattr(machines, "KVM", tmp_path)
    monkeypatch.setattr(machines, "PROBE_LIMIT_S", 1)
    assert machines.accelerated(qemu(tmp_path, then), Image(tmp_path), tmp_path) is used


def test_where_there_is_no_kvm_none_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "KVM", tmp_path / "kvm")
    words = qemu(tmp_path, f"echo '{DIES}' >$console")
    assert not machines.accelerated(words, Image(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("said", "version"),
    [("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)", 7), ("QEMU emulator version 10.0.13", 10)],
)
def test_the_age_of_a_qemu_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, version: int) -> None:
    (tmp_path / "qemu-system-x86_64").write_text(f"#!/bin/sh\necho '{said}'\n")
    (tmp_path / "qemu-system-x86_64").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert image.own_qemu() == version


def test_every_file_of_tests_has_its_place_in_the_order() -> None:
    (order,) = re.findall(r"^for name in (.*?); do", (HERE / "run.sh").read_text(), re.MULTILINE)
    assert sorted(order.split()) == sorted(path.stem.removeprefix("test_") for path in HERE.glob("test_*.py"))
    assert order.split()[0] == "up"
    # A cluster of its own comes when the others' has gone.
    assert order.split()[-2:] == ["leaving", "debian_12"]
