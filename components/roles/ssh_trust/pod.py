"""Accept the head node's requests on a pod: a separate SSH server on 127.0.0.1, which only the tailnet reaches."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files, services
from components.node.step.step import Step
from components.roles.pod.paths import SSHD_PORT
from components.roles.ssh_trust import authorities, certificate
from components.roles.ssh_trust.authorities import LEAVE_KEY_FILE
from components.roles.ssh_trust.certificate import POD_KEY_FILE, POD_SERVICE
from components.roles.ssh_trust.node import write_leave_program
from components.roles.ssh_trust.trust import trust_authorities

# Where tailscaled connects from. The keys open only the two programs of the head node.
_FROM = "127.0.0.1"
_CONF = "/etc/ssh/tailrack_sshd_config"
_CONF_TEXT = f"""# Written by tailrack: the head node may run tailrack-leave and tailrack-answer, and nothing else.
ListenAddress {_FROM}:{SSHD_PORT}
HostKey {POD_KEY_FILE}
HostCertificate {POD_KEY_FILE}-cert.pub
PidFile none
AllowUsers root
PermitRootLogin forced-commands-only
AuthenticationMethods publickey
AuthorizedKeysFile {LEAVE_KEY_FILE}
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
DisableForwarding yes"""
_PROGRAM = f"""#!/bin/sh
# Written by tailrack.
exec 2>&1
mkdir -p /run/sshd
exec /usr/sbin/sshd -D -e -f {_CONF}"""


@dataclass(frozen=True)
class PodValues:
    """The values that the head node gives this pod (node.py has their meaning)."""

    node_authorities: str
    node_certificate: str
    node_leave_plan: str
    node_leave_values: str
    ssh_trust_leave_command: str


def pod(step: Step, values: PodValues) -> None:
    """Let the head node ask before anything else, so that it can make this pod leave."""
    write_leave_program(values.node_leave_plan, values.node_leave_values, values.ssh_trust_leave_command)
    trust_authorities(values.node_authorities)
    authorities.let_ask(_FROM)
    changed = files.write(_CONF, _CONF_TEXT)
    certificate.install(values.node_certificate)
    services.keep(POD_SERVICE, _PROGRAM, step.host, restart_it=changed)
