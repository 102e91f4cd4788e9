"""Lab pods as the machines of the played cloud: reached at a mapped port, which changes with each new container."""

import base64
import json
import shlex
from pathlib import Path

from lab import docker_daemon, node, pod
from lab.node import NodeAddress
from tests.lab import pod_restarts
from tests.played_cloud.account import Machine
from tests.played_cloud.containers import Containers, other_key

_HOST_KEY = "tailrack_host_key"


class Pods(Containers):
    """Pods in a lab, whose networks are named after the regions."""

    def __init__(self, lab: str, state_dir: Path, regions: list[str]) -> None:
        super().__init__(lab, state_dir, regions, "pod")

    def start(self, machine: Machine, *, own_host_key: bool) -> str:
        """Start a pod with the machine's command and environment."""
        start = _start(machine)
        if own_host_key:
            key = {_HOST_KEY: base64.b64encode(other_key().encode()).decode()}
            start = pod.Start(start.command, {**start.environment, **key})
        client = docker_daemon.connect()
        try:
            return _place(node.up(client, self._spec(machine), start=start))
        finally:
            client.close()

    def restart(self, machine: Machine) -> None:
        """Replace the pod's container, of which only the volume stays."""
        client = docker_daemon.connect()
        machine.address = _place(pod_restarts.recreate(client, self._spec(machine), _start(machine)))
        client.close()


def _start(machine: Machine) -> pod.Start:
    wanted = json.loads(machine.user_data)
    return pod.Start(tuple(shlex.split(wanted["args"])), wanted["env"])


def _place(address: NodeAddress) -> str:
    return f"{address.address}:{address.port}"
