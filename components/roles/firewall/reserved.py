"""Reserve the cluster's ports: the kernel assigns none of them to a program that asks for any free port.

NCCL and MPI listen on such ports on the fabric, where one in thirty would be closed. Reservations of other programs
stay.
"""

from __future__ import annotations

from components.node import files, kernel
from components.node.log import note
from components.node.step.step import STATE_DIR

_SETTING = "/proc/sys/net/ipv4/ip_local_reserved_ports"
# The value before the cluster.
_BEFORE = f"{STATE_DIR}/reserved-ports"
_CONF = "/etc/sysctl.d/90-tailrack.conf"


def reserve_ports(ports: str, relay_port: str) -> None:
    """Reserve ports and ranges, separated by commas, and the relay's port, now and at every boot."""
    reserved = kernel.read(_SETTING).strip()
    if not files.exists(_BEFORE):
        files.write(_BEFORE, reserved)
    wanted = ",".join(filter(None, (reserved, ports.replace(" ", ""), relay_port)))
    if not kernel.write(_SETTING, f"{wanted}\n"):
        note(f"cannot write {_SETTING} here, as in containers: some connections to a job's port may be refused")
        return
    merged = kernel.read(_SETTING).strip()
    files.write(_CONF, f"# Written by tailrack.\nnet.ipv4.ip_local_reserved_ports = {merged}")


def release_ports() -> None:
    """Let the kernel assign the ports again."""
    if not files.exists(_CONF):
        return
    before = files.read(_BEFORE)
    if before is not None:
        kernel.write(_SETTING, before)
    files.remove(_CONF)
