"""Versions on a node and the published holes that they have, and the note of it in Slurm."""

import gzip
from pathlib import Path

import pytest

from components.validation.preflight.drain import NOTE_PREFIX, new_comment, note_in
from components.validation.preflight.findings import finding
from components.validation.preflight.node import DRIVER, SLURM, TOOLKIT, check_versions, missing

STATUS = (Path(__file__).parents[3] / "fixtures/dpkg/status-of-one-package").read_text(encoding="utf-8")


def machine(root: Path, name: str, version: str, changelog: str | None = None, state: str = "installed") -> None:
    status = root / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text(STATUS.format(name=name, version=version, state=state, wanted="hold"))
    if changelog is not None:
        doc = root / "usr/share/doc" / name
        doc.mkdir(parents=True)
        (doc / "changelog.Debian.gz").write_bytes(gzip.compress(changelog.encode()))


def seen(root: Path) -> list[str]:
    found = list(check_versions(root))
    assert {item["severity"] for item in found} <= {"info"}
    assert all(item["remedy"] for item in found)
    return [item["seen"] for item in found]


@pytest.mark.parametrize(
    ("product", "lacks", "versions"),
    [
        (DRIVER, "580.178.04", ["580.159.04"]),
        (DRIVER, "535.309.01", ["535.288.01"]),
        (DRIVER, "615.71.09", ["550.163.01"]),  # a branch without fixes
        (DRIVER, None, ["580.178.04", "580.200", "535.309.01", "620.10", "", "N/A"]),
        (SLURM, "25.11.8", ["25.11.7-1", "24.11.5-4"]),
        (SLURM, None, ["1:25.11.8-1", "26.05.1"]),
        (TOOLKIT, "1.19.1", ["1.17.8-1"]),
        (TOOLKIT, None, ["1.20.0~rc.1-1"]),
    ],
)
def test_a_version_lacks_the_fix_of_its_branch(product: str, lacks: str | None, versions: list[str]) -> None:
    for version in versions:
        fix = missing(product, version)
        assert (fix.release if fix else None) == lacks, version


def test_an_old_driver_is_named_with_the_hole_and_the_bulletin(tmp_path: Path) -> None:
    module = tmp_path / "sys/module/nvidia/version"
    module.parent.mkdir(parents=True)
    module.write_text("580.159.04\n")
    (text,) = seen(tmp_path)
    assert text.startswith("NVIDIA driver 580.159.04 is older than 580.178.04, which closes CVE-2026-47501 (https://")
    module.write_text("580.178.04\n")
    assert seen(tmp_path) == []


@pytest.mark.parametrize(
    ("changelog", "is_named"),
    [
        pytest.param("slurm-wlm (24.11.5-4) unstable\n  * Fix CVE-2025-43904\n", True, id="without the fix"),
        pytest.param(
            "slurm-wlm (24.11.5-4+deb13u1) trixie\n  * Fix CVE-2026-65107, CVE-2026-65108\n", False, id="fixed"
        ),
        pytest.param(None, False, id="no changelog, as in small images"),
    ],
)
def test_a_debian_package_is_judged_by_its_changelog(tmp_path: Path, changelog: str | None, is_named: bool) -> None:
    machine(tmp_path, "slurmd", "24.11.5-4", changelog)
    assert bool(seen(tmp_path)) is is_named


def test_the_note_changes_only_with_its_text_and_never_replaces_another_comment(tmp_path: Path) -> None:
    machine(tmp_path, "libnvidia-container-tools", "1.17.8-1")
    found = list(check_versions(tmp_path))
    comment = new_comment([*found, finding("info", "disk", "Toolkit", "Toolkit")], "")
    assert comment is not None
    assert comment.startswith(f"{NOTE_PREFIX}versions: NVIDIA Container Toolkit 1.17.8-1 is older than 1.19.1")
    assert comment.count("Toolkit") == 1
    assert new_comment(found, comment) is None
    assert new_comment([], comment) == ""
    assert new_comment([], "") is None
    assert new_comment(found, "rack 7, ask Ada") is None
    assert note_in("rack 7, ask Ada") == ""
    assert note_in(comment) == comment.removeprefix(NOTE_PREFIX)
