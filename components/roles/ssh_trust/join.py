"""Report the sshd port and the host key to the head node."""

from __future__ import annotations

from components.node import systemd
from components.node.step.step import Step
from components.roles.ssh_trust import sshd
from components.roles.ssh_trust.trust import HOST_KEY_FILE, public_key


def join(step: Step) -> None:
    """Report both, and keep sshd running."""
    systemd.keep_running("ssh.service")
    step.result("sshd_port", sshd.port())
    step.result("host_key", public_key(HOST_KEY_FILE) or None)
