"""An SSH server that tailrack installed accepts keys only; its package would also accept passwords.

Role firewall opens it to the tailnet only, unless it is the way in from elsewhere.
"""

from __future__ import annotations

from components.node import files
from components.node.log import note
from components.node.run import attempt, succeeds
from components.node.step.step import Step
from components.roles.ssh_trust import sshd

OWN_CONF = "/etc/ssh/sshd_config.d/00-tailrack.conf"
_KEYS_ONLY = """# Written by tailrack, which brought this SSH server.
PasswordAuthentication no
KbdInteractiveAuthentication no"""


def machine(step: Step) -> None:
    """Configure and start such a server."""
    if not sshd.came_with_us():
        return
    if files.write(OWN_CONF, _KEYS_ONLY):
        sshd.reload_valid()
    # Its package started nothing (install_unstarted). Some distributions start it by a socket.
    unit = "ssh.socket" if succeeds("systemctl", "is-enabled", "-q", "ssh.socket") else "ssh.service"
    if not attempt("systemctl", "enable", "-q", "--now", unit).ok:
        note(f"{unit} does not start: does something else listen at port {sshd.port()}?")
