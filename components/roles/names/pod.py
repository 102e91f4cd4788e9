"""Make a pod's own names resolve.

Slurm binds to the address of the host name: 127.0.0.1, where tailscaled passes connections to.
"""

from __future__ import annotations

from socket import gethostname

from components.node import files
from components.node.failure import Failure
from components.node.step.step import STATE_DIR, Step
from components.node.waiting import wait_for
from components.roles.names.hosts import Machine, with_machines
from components.roles.names.names import HOSTS, NODE_NAME, read_hosts
from components.roles.tailnet import tailscale

_ADDRESS_SECONDS = 60


def pod(step: Step) -> None:
    """Write the names. The provider writes /etc/hosts again when the container starts."""
    files.write(NODE_NAME, step.host)
    files.make_folder(STATE_DIR, 0o711)
    address = wait_for(lambda: tailscale.address() or None, _ADDRESS_SECONDS)
    if not address:
        raise Failure("tailscaled has no address", f"see 'tailscale status' on {step.host}")
    host_name = gethostname()
    machines = [Machine("127.0.0.1", host_name), Machine(address, step.host)]
    files.rewrite(HOSTS, with_machines(read_hosts(), machines, host_name))
