"""Make the host key of a pod's own SSH server, and report it to the head node.

The provider's server stays as it is: it belongs to the image, its host key changes with the container, and it cannot
tell the head node from another machine, because tailscaled connects from 127.0.0.1.
"""

from __future__ import annotations

from components.node import files
from components.node.run import run
from components.node.step.step import Step
from components.roles.pod.paths import SSHD_PORT
from components.roles.ssh_trust.certificate import POD_KEY_FILE
from components.roles.ssh_trust.trust import public_key


def pod_join(step: Step) -> None:
    """Make the key, and report the port."""
    # ssh-keygen writes the public key last, so a key without it is incomplete.
    if not public_key(POD_KEY_FILE):
        files.remove(POD_KEY_FILE)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "tailrack", "-f", POD_KEY_FILE)
    step.result("sshd_port", SSHD_PORT)
    step.result("host_key", public_key(POD_KEY_FILE) or None)
