"""SSH between nodes with known host keys and no list of them: the head node is a certificate authority."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import File, Role, template


def role(_settings: ClusterSettings) -> Role:
    """Every node shows a certificate of the authority, and everybody trusts the authority."""
    trusts = (
        _program("tailrack-known-hosts"),
        _program("tailrack-certificate"),
        File("/etc/ssh/ssh_config.d/tailrack.conf", template("ssh_trust", "ssh_config")),
    )
    return Role(
        "ssh_trust",
        after=("users",),
        packages={"join": ("openssh-server",)},
        files={
            "head": (*trusts, _program("tailrack-sign"), _timer("tailrack-sign")),
            "node": (*trusts, _timer("tailrack-certificate")),
        },
    )


def _program(name: str) -> File:
    return File(f"/usr/local/sbin/{name}", template("ssh_trust", name), mode="0755")


def _timer(name: str) -> File:
    return File(f"/etc/systemd/system/{name}.timer", template("ssh_trust", f"{name}.timer"))
