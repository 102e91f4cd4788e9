"""What the tests on real GPUs stand on, as far as it needs none: archives, what the driver says, a table by hand."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.gpu.by_hand import bus_bandwidth
from tests.gpu.machines import Gpu, gpus_here, kind_of
from tests.gpu.pack import Stream, chosen, in_parts, is_left_out, role_packages

PROJECT = Path(__file__).parents[4]
TABLES = PROJECT / "tests" / "fixtures" / "nccl_tests"


@pytest.mark.parametrize(
    ("path", "left_out"),
    [
        ("usr/share/doc", True),
        ("./usr/share/doc/bash/copyright", True),
        ("usr/share/docker", False),
        ("var/cache", False),
        ("var/cache/apt/pkgcache.bin", True),
        ("usr/lib/x86_64-linux-gnu/libLLVM-17.so.1", True),
        ("usr/lib/x86_64-linux-gnu/libmpi.so.40", False),
        ("usr/lib/python3/dist-packages/numpy/testing/overrides.py", False),
        ("usr/lib/python3.13/json/__pycache__/tool.pyc", True),
        ("var/lib/dpkg/status", False),
        # For hold-ports (role firewall).
        ("usr/bin/perl", False),
        ("usr/bin/perl5.40.1", False),
        ("usr/lib/x86_64-linux-gnu/perl-base/POSIX.pm", False),
        ("usr/bin/perldoc", True),
    ],
)
def test_the_archive_of_a_node_omits_unused_files(path: str, left_out: bool) -> None:
    assert is_left_out(path) is left_out


def test_packages_of_tests_come_with_their_hashes_and_a_missing_one_is_named() -> None:
    b = "b==2 ; python_version < '3' \\\n    --hash=sha256:2 \\\n    --hash=sha256:3\n"
    text = f"a==1 \\\n    --hash=sha256:1\n    # via b\n{b}"
    assert chosen(text, ["b"]) == b
    with pytest.raises(ValueError, match="not in the requirements: c"):
        chosen(text, ["a", "c"])


def test_a_node_has_the_packages_of_every_role() -> None:
    assert {"slurmd", "slurmctld", "nftables", "libpam-slurm-adopt"} <= set(role_packages())


def test_archives_come_in_parts_of_a_size_that_make_them_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.gpu.pack.PART_BYTES", 6)
    node, program = tmp_path / "node.tar.xz", tmp_path / "program.tar.xz"
    node.write_bytes(b"0123456789")
    program.write_bytes(b"abcd")
    (tmp_path / "9").mkdir()  # of an earlier time
    parts = in_parts(node, program)
    assert [part.read_bytes() for part in parts] == [b"01234", b"56789", b"", b"abcd"]
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"1", "2", "3"}


def test_the_harness_joins_dockers_chunks_into_one_file() -> None:
    assert Stream(iter([b"ab", b"", b"cdefg"])).read() == b"abcdefg"


def test_the_driver_lists_gpus_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number, bus in ((1, "0000:00:07.0"), (0, "0000:00:06.0")):
        (tmp_path / bus).mkdir()
        words = (
            f"Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-4194ce99\nBus Location: \t {bus}\nDevice Minor: \t {number}\n"
        )
        (tmp_path / bus / "information").write_text(words)
    assert gpus_here(tmp_path) == [Gpu(0, "0000:00:06.0", "h200"), Gpu(1, "0000:00:07.0", "h200")]
    assert gpus_here(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("model", "kind"), [("NVIDIA H100 80GB HBM3", "h100"), ("Tesla T4", "t4"), ("NVIDIA L40S", "l40s")]
)
def test_the_kind_of_a_gpu_is_its_models_own_name(model: str, kind: str) -> None:
    assert kind_of(model) == kind


def test_bus_bandwidth_by_hand_is_bytes_over_time_at_one_size() -> None:
    table = (TABLES / "nccl-tests-2.19-4xH200-nvlink-nvls-off.txt").read_text()
    assert bus_bandwidth(table, 8 << 30, 4) == pytest.approx(365.08, abs=0.005)
    with pytest.raises(ValueError, match="no row of 17179869184 bytes"):
        bus_bandwidth(table, 16 << 30, 4)


def test_a_table_with_wrong_elements_gives_no_bandwidth_by_hand() -> None:
    row = "  1024  256  float  sum  -1  {0}  0.10  0.10  {1}  10.5  0.10  0.10  0\n"
    assert bus_bandwidth(row.format("10.24", 0), 1024, 2) == pytest.approx(0.1)
    for broken in (row.format("10.24", 3), row.format("10.24", "N/A"), row.format("10.24", 0) * 2):
        with pytest.raises(ValueError, match="without an error"):
            bus_bandwidth(broken, 1024, 2)


def test_without_gpus_it_says_loudly_that_nothing_was_tested(tmp_path: Path) -> None:
    if list(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has GPUs")
    run = [str(PROJECT / "tests" / "gpu" / "run.sh")]
    done = subprocess.run(run, capture_output=True, text=True, env={**os.environ, "OUT": str(tmp_path)}, timeout=60)
    assert done.returncode == 0
    assert "SKIPPED, NOTHING WAS TESTED: this machine shows 0 NVIDIA GPUs" in done.stderr
