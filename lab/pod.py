"""The container of a pod, as RunPod's hosts start it: Docker's defaults, a volume, and a mapped port for SSH."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from docker.models.containers import Container
from docker.types import Mount

POD = "pod"
SSH = "22/tcp"

BOOT = "/workspace/.tailrack/boot"
START_COMMAND = f"[ -x {BOOT} ] && {BOOT} & exec /start.sh"
"""The start command in docs/pods.md: the cluster's programs if they are installed, then the image's."""

MEMORY_BYTES, CPUS = 4 * 2**30, 1
"""Limits of a pod. Its /proc shows the memory and the cores of the whole host."""


@dataclass(frozen=True)
class Start:
    """The command and the environment with which a pod starts."""

    command: tuple[str, ...] = ("bash", "-c", START_COMMAND)
    environment: Mapping[str, str] = field(default_factory=dict)


USUAL_START = Start()


def options(name: str, gateway: str, start: Start) -> dict[str, Any]:
    """Return the options with which Docker creates a pod.

    gateway   the address of its host, at which it is reached: that of its network's bridge

    A pod gets Docker's default capabilities and seccomp profile, no device, and Docker's name for a host name.
    """
    return {
        "command": list(start.command),
        "environment": dict(start.environment),
        "ports": {SSH: (gateway, free_port(gateway))},
        "mounts": [Mount("/workspace", volume(name), type="volume")],
        "mem_limit": MEMORY_BYTES,
        "nano_cpus": CPUS * 10**9,
    }


def volume(name: str) -> str:
    """Return the name of the volume of a pod's container; it outlives the container."""
    return f"{name}-workspace"


def free_port(address: str) -> int:
    """Return a free TCP port of an address. The kernel chooses it, so the next one differs."""
    with socket.socket() as listener:
        listener.bind((address, 0))
        return int(listener.getsockname()[1])


def endpoint(container: Container) -> tuple[str, int]:
    """Return the address and port at which a pod's SSH server is reached."""
    (binding,) = container.attrs["HostConfig"]["PortBindings"][SSH]
    return str(binding["HostIp"]), int(binding["HostPort"])
