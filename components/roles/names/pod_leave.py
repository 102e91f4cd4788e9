"""Remove the names from /etc/hosts."""

from __future__ import annotations

from socket import gethostname

from components.node import files
from components.node.step.step import Step
from components.roles.names.hosts import has_name, with_machines
from components.roles.names.names import HOSTS, read_hosts


def pod_leave(step: Step) -> None:
    """Remove the cluster's lines. The host name must resolve until the provider writes the file again."""
    hosts, host_name = with_machines(read_hosts(), []), gethostname()
    if not has_name(hosts, host_name):
        hosts += f"\n127.0.1.1 {host_name}"
    files.rewrite(HOSTS, hosts)
