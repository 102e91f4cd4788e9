"""Machines for a bench, which answer SSH and belong to no stack: containers of a lab."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import docker
from docker.models.containers import Container

from cli import lab_commands
from cli.pulumi.workspace import PROJECT
from lab.identity import LABEL, container_name, control_name, lab_id
from lab.node import cgroup_hierarchy
from tests.lab.cluster import own_machine

Host = dict[str, Any]
"""A machine as a host of a stack's config."""


def cpu_of(file: Path) -> float:
    """Seconds of the CPU that a control group has had, by its cpu.stat."""
    counters = dict(line.split() for line in file.read_text().splitlines())
    return int(counters["usage_usec"]) / 1e6


class Machines(Protocol):
    """Operations on machines by name."""

    kind: str
    config: Mapping[str, Any]
    """Return the config keys that a stack of such machines needs."""

    def made(self, names: Sequence[str]) -> Any:
        """With new machines of these names, and only while: their hosts."""

    def cpu_seconds(self) -> dict[str, float]:
        """Seconds of the CPU that each machine has had since it booted, and the tailnet's control server if known."""

    def prefer(self, names: Collection[str]) -> None:
        """Give these machines and the control server priority on the cores, as if the others ran elsewhere."""

    def says(self, name: str, command: str) -> str:
        """Return the output of a command that root runs on a machine."""


class Containers:
    """A lab's containers, which share this machine's cores."""

    kind = "containers"
    config: Mapping[str, Any] = {}

    def __init__(self, stack: str) -> None:
        self._lab = lab_id(PROJECT, stack)

    @contextmanager
    def made(self, names: Sequence[str]) -> Iterator[list[Host]]:
        lab_commands.prepare()
        lab_commands.clear_away(self._lab)
        try:
            yield [own_machine(self._lab, name) for name in names]
        finally:
            lab_commands.clear_away(self._lab)

    def _containers(self) -> list[Container]:
        client = docker.from_env()
        containers: list[Container] = client.containers.list(filters={"label": f"{LABEL}={self._lab}"})
        client.close()
        return containers

    def cpu_seconds(self) -> dict[str, float]:
        taken = dict[str, float]()
        for each in self._containers():
            # Docker's own figures take a second each.
            for file in cgroup_hierarchy().glob(f"*/*{each.id}*/cpu.stat"):
                taken[each.name.removeprefix(container_name(self._lab, ""))] = cpu_of(file)
        return taken

    def prefer(self, names: Collection[str]) -> None:
        first = {control_name(self._lab), *(container_name(self._lab, name) for name in names)}
        for each in self._containers():
            if each.name not in first:
                each.update(cpu_shares=2)

    def says(self, name: str, command: str) -> str:
        container = docker.from_env().containers.get(container_name(self._lab, name))
        return str(container.exec_run(["bash", "-c", command]).output.decode())
