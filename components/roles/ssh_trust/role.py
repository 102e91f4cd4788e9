"""SSH between nodes with known host keys and no list of them: the head node is a certificate authority."""

from __future__ import annotations

from components.cluster_settings import ClusterSettings
from components.roles.role import File, Role, template


def role(_settings: ClusterSettings) -> Role:
    """Every node shows a certificate of the authority, and everybody trusts the authority."""
    program = "tailrack-known-hosts"
    trusts = (
        File(f"/usr/local/sbin/{program}", template("ssh_trust", program), mode="0755"),
        File("/etc/ssh/ssh_config.d/tailrack.conf", template("ssh_trust", "ssh_config")),
    )
    return Role(
        "ssh_trust",
        packages={"join": ("openssh-server",)},
        files={"head": trusts, "node": trusts},
    )
