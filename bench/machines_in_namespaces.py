"""Machines for a bench where there are many cores and neither Docker nor network: those of `make test-gpu`, less GPUs.

    MODULE=bench.usable_nodes tests/gpu/run.sh 3,8 3,33

No package can be installed there, so the stack has no accounting: it needs a database.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from bench.machines import Host, cpu_of
from tests.gpu.machines import PROGRAMS, Machine, boot, stop


class Namespaces:
    """Machines with systemd in namespaces of this one."""

    kind = "machines in namespaces, no accounting"
    config: Mapping[str, Any] = {"tailrack:accounting": {"enabled": False}}

    def __init__(self) -> None:
        self._machines = dict[str, Machine]()

    @staticmethod
    def are_here() -> bool:
        """Whether this runs in the tree that tests/gpu/run.sh makes."""
        return PROGRAMS.exists()

    @contextmanager
    def made(self, names: Sequence[str]) -> Iterator[list[Host]]:
        # The network's first address is the control server's.
        self._machines = {name: Machine(name, number) for number, name in enumerate(names, start=2)}
        machines = self._machines.values()
        control = boot(machines)
        try:
            yield [machine.host() for machine in machines]
        finally:
            stop(machines, control)

    def cpu_seconds(self) -> dict[str, float]:
        return {name: cpu_of(machine.cgroup / "cpu.stat") for name, machine in self._machines.items()}

    def prefer(self, names: Collection[str]) -> None:
        """Such a machine has cores for all."""

    def says(self, name: str, command: str) -> str:
        return self._machines[name].attempt(command).stdout
