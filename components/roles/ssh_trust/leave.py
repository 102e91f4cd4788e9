"""Remove the cluster's authority, this machine's certificate and the head node's access."""

from __future__ import annotations

from components.node import files, systemd
from components.node.run import attempt
from components.node.step.step import Step
from components.roles.ssh_trust import sshd
from components.roles.ssh_trust.machine import OWN_CONF

_FILES = (
    "/usr/local/sbin/tailrack-sign",
    "/usr/local/sbin/tailrack-certificate",
    "/usr/local/sbin/tailrack-known-hosts",
    "/etc/ssh/tailrack_authority.pub",
    "/etc/ssh/tailrack_leave_key",
    "/etc/ssh/ssh_config.d/tailrack.conf",
    "/etc/ssh/ssh_host_ed25519_key-cert.pub",
    "/etc/ssh/sshd_config.d/tailrack.conf",
    "/etc/ssh/sshd_config.d/tailrack-leave.conf",
    "/etc/ssh/tailrack_host_key",
    "/etc/ssh/tailrack_host_key.pub",
    "/etc/ssh/tailrack_host_key-cert.pub",
    "/etc/ssh/tailrack_sshd_config",
)


def leave(step: Step) -> None:
    """Remove the files first: systemd may fail."""
    for path in _FILES:
        files.remove(path)
    systemd.retire(*(f"tailrack-{name}.{kind}" for name in ("sign", "certificate") for kind in ("timer", "service")))
    if files.exists(OWN_CONF):
        # Open sessions continue, including the head node's.
        attempt("systemctl", "disable", "-q", "--now", "ssh.socket", "ssh.service")
        files.remove(OWN_CONF)
    sshd.reload()
