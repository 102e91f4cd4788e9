"""SSH on a pod, and its registration on the head node.

The provider's server stays as it is: it belongs to the image, its host key changes with the container, and it cannot
tell the head node from another machine, because tailscaled connects from 127.0.0.1.

If the pods of a site share a network, the cluster's own server listens there too, so that other pods can check that
they reach this one (roles/pods/pod/host.py). It accepts no key from there.
"""

import json
from dataclasses import dataclass

from components.node import files, services
from components.node.run import run
from components.node.step.step import Step
from components.roles.access.ssh_trust import certificate
from components.roles.access.ssh_trust.ask import MEMBERS
from components.roles.access.ssh_trust.certificate import LEAVE_KEY_FILE, POD_KEY_FILE, POD_SERVICE, public_key
from components.roles.access.ssh_trust.host import GivenValues, accept_requests
from components.roles.access.ssh_trust.sign import WITHOUT_SHARE
from components.roles.pods.pod.saved import SSHD_PORT

# Where tailscaled connects from. The keys open only the two programs of the head node.
_FROM = "127.0.0.1"
_CONF = "/etc/ssh/tailrack_sshd_config"
_CONF_TEXT = f"""# Written by tailrack: the head node may run tailrack-leave and tailrack-answer, and nothing else.
{{listen}}
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


def pod_join(step: Step) -> None:
    """Make the key, and report the port."""
    # ssh-keygen writes the public key last, so a key without it is incomplete.
    if not public_key(POD_KEY_FILE):
        files.remove(POD_KEY_FILE)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "tailrack", "-f", POD_KEY_FILE)
    step.result("sshd_port", SSHD_PORT)
    step.result("host_key", public_key(POD_KEY_FILE) or None)


@dataclass(frozen=True)
class PodValues(GivenValues):
    """The networks of its site that the pod is in, too, as JSON."""

    node_networks: str


def pod(step: Step, values: PodValues) -> None:
    """Let the head node ask before anything else, so that it can make this pod leave."""
    accept_requests(values, _FROM)
    interfaces = (json.loads(values.node_networks) or {}).get("interfaces", [])
    networks = [interface["address"].partition("/")[0] for interface in interfaces]
    listen = "\n".join(f"ListenAddress {address}:{SSHD_PORT}" for address in (_FROM, *networks))
    changed = files.write(_CONF, _CONF_TEXT.format(listen=listen))
    certificate.install(values.node_certificate)
    services.keep(POD_SERVICE, _PROGRAM, step.host, restart_it=changed)


def pod_register(step: Step, node_name: str) -> None:
    """Write the record; `forget` of ssh_trust removes it with the others."""
    files.write(f"{MEMBERS}/{node_name}/{WITHOUT_SHARE}", "")
