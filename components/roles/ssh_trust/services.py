"""Present a certificate on the head node too, for users who log in from a node.

Renew all certificates before they expire, and replace the authority if the config asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from components.node.log import note
from components.node.step.step import STATE_DIR, Step
from components.roles.ssh_trust.authority import SIGN, certificate_for
from components.roles.ssh_trust.trust import HOST_KEY_FILE, ensure_timer, public_key, show_certificate
from components.roles.ssh_trust.turn import Turn, turn_to


@dataclass(frozen=True)
class ServicesValues:
    """The head node.

    head_address           its tailnet address
    nfs_exports_path       the share, from which machines fetch their next certificate
    ssh_trust_generation   text of the config; a change replaces the authority
    """

    head_address: str
    nfs_exports_path: str
    ssh_trust_generation: str


def services(step: Step, values: ServicesValues) -> None:
    """Show, renew and replace certificates."""
    folder = f"{values.nfs_exports_path}/.tailrack/certificates"

    def show_own() -> None:
        show_certificate(certificate_for(step.host, values.head_address, public_key(HOST_KEY_FILE)))

    show_own()
    ensure_timer(
        "tailrack-sign",
        f"{SIGN} publish {folder}",
        f"/usr/local/sbin/tailrack-certificate {STATE_DIR}/members/{step.host}/key-cert.pub",
    )
    note(f"SSH authority of generation '{values.ssh_trust_generation}'")
    turn_to(step, Turn(step.host, values.ssh_trust_generation, folder, show_own))
