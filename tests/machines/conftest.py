"""Virtual machines and their cluster, for every test here."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import programs
from lab.progress import say
from tests.machines.cluster import MachineCluster
from tests.machines.image import PLACE, ensure_qemu, image
from tests.machines.machines import EMULATED_WORDS, KVM_WORDS, Machine, accelerated, connect, is_connected

OUT = PLACE / "out"
"""What is kept of a run: consoles and logs of the machines."""

EMULATED_SLOWNESS = 6.0


def pytest_configure(config: pytest.Config) -> None:
    """Name the marks of these tests."""
    config.addinivalue_line("markers", "short: of the short form, which takes minutes where there is KVM")


@pytest.fixture(scope="session")
def place() -> Path:
    """The folder of disks and consoles, with the network of the machines."""
    if not is_connected():
        shutil.rmtree(OUT, ignore_errors=True)
        OUT.mkdir()
        connect(OUT, programs.ready() / "control")
    return OUT


@pytest.fixture(scope="session")
def machines(place: Path) -> Iterator[dict[str, Machine]]:
    """A head node and nodes, none of them on yet; n1 and n2 have RDMA devices made of their network cards."""
    qemu, first = ensure_qemu(), image("trixie")
    fast = accelerated(qemu, first, place)
    say(f"machines: {'KVM' if fast else 'emulated: no KVM here boots a stock kernel'}")
    words, slowness = (KVM_WORDS, 1.0) if fast else (EMULATED_WORDS, EMULATED_SLOWNESS)
    every = [
        Machine(name, number, cpus, memory, image(release), [*qemu, *words], slowness, place, rdma)
        for name, number, cpus, memory, release, rdma in (
            ("head", 11, 1, 1536, "trixie", False),
            ("n1", 21, 2, 1280, "trixie", True),
            ("n2", 22, 1, 1280, "trixie", True),
            ("n3", 23, 2, 1280, "bookworm", False),
        )
    ]
    yield {machine.name: machine for machine in every}
    for machine in every:
        if machine.is_on:
            for name, command in (("journal", "journalctl --no-pager -b"), ("steps", "tail -n +1 /var/log/tailrack/*")):
                (place / f"{machine.name}.{name}").write_text(machine.attempt(command).stdout)


@pytest.fixture(scope="session")
def cluster(machines: dict[str, Machine], tmp_path_factory: pytest.TempPathFactory) -> MachineCluster:
    """The machines' cluster; tests say of which nodes, in the order in which they run."""
    made = MachineCluster(tmp_path_factory.mktemp("machines"), machines)
    if not any(machine.is_on for machine in machines.values()):
        # A run that failed has left a state: of machines that had these addresses and other host keys.
        made.remove()
    return made
