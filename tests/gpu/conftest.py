"""Machines with GPUs and their cluster, for every test here; and what is kept of them, in OUT."""

import shutil
import time
from collections.abc import Iterator

import pytest

from tests.gpu.cluster import GpuCluster
from tests.gpu.machines import PLACE, PROGRAMS, Gpu, Machine, boot, gpus_here


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep what came of each test as it ends: the machine may be taken away before the last."""
    out = PLACE / "out"
    if out.is_dir() and (report.when == "call" or not report.passed):
        line = f"{time.strftime('%H:%M:%S')} {report.duration:7.1f} s {report.outcome} {report.nodeid}\n"
        with (out / "tests.txt").open("a") as file:
            file.write(line + (f"{report.longreprtext}\n" if report.failed else ""))


@pytest.fixture(scope="session")
def gpus() -> list[Gpu]:
    """The GPUs of this machine; none where this is a rehearsal."""
    if not PROGRAMS.exists():
        pytest.skip("REAL GPUS ARE NOT TESTED: tests/gpu runs by `make test-gpu` alone, in the tree of a machine")
    return gpus_here()


@pytest.fixture(scope="session")
def real(gpus: list[Gpu]) -> None:
    """Skips where there is no GPU."""
    if not gpus:
        pytest.skip("NO GPU IS HERE: this is a rehearsal of what needs none")


@pytest.fixture(scope="session")
def machines(gpus: list[Gpu]) -> Iterator[dict[str, Machine]]:
    """A head node without a GPU, two nodes with one GPU each and a fabric between them, one with all GPUs.

    NCCL takes the same GPU of two machines for two GPUs, so one is enough for all of them.
    """
    made = [
        Machine("head", 2, fabric=True),
        Machine("a", 3, gpus[:1], fabric=True),
        Machine("b", 4, gpus[1:2] or gpus, fabric=True),
        Machine("c", 5, gpus),
    ]
    boot(made)
    yield {machine.name: machine for machine in made}
    for machine in made:
        log = PLACE / "out" / machine.name
        journal = machine.attempt("journalctl --no-pager -o short-precise", 30).stdout
        shutil.copytree(machine.tree / "var/log/tailrack", log, dirs_exist_ok=True)
        (log / "journal").write_text(journal)


@pytest.fixture(scope="session")
def cluster(machines: dict[str, Machine], tmp_path_factory: pytest.TempPathFactory) -> GpuCluster:
    """The machines' cluster; each test file has in it what it needs."""
    return GpuCluster(tmp_path_factory.mktemp("gpus"), machines)
