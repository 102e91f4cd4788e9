"""SSH between nodes with known host keys and no list of them: the head node is a certificate authority."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.facts import whole
from components.roles.program import launcher
from components.roles.role import File, Role, template
from components.roles.ssh_trust.facts import authorities, certificate, ed25519


def role(settings: ClusterSettings) -> Role:
    """Return the role: every node presents a certificate of the authority, and all machines trust the authority."""
    trusts = (
        _program("tailrack-known-hosts"),
        _program("tailrack-certificate"),
        File("/etc/ssh/ssh_config.d/tailrack.conf", template("ssh_trust", "ssh_config")),
    )
    answers = (
        File(f"/usr/local/lib/tailrack/answers/{name}", template("ssh_trust", name), mode="0755")
        for name in ("authority", "certificate")
    )
    return Role(
        "ssh_trust",
        after=("users",),
        values={"SSH_TRUST_GENERATION": settings.cluster.ssh_generation},
        texts={"SSH_TRUST_LEAVE_COMMAND": launcher("kept", "leave")},
        packages={"join": ("openssh-server",)},
        state=(
            *("/var/lib/tailrack/ssh_authority*", "/var/lib/tailrack/leave_key*", "/var/lib/tailrack/members"),
            "/etc/ssh/ssh_host_*_key*",
        ),
        files={
            "head": (*trusts, _program("tailrack-sign"), _timer("tailrack-sign"), _program("tailrack-ask")),
            "node": (*trusts, _timer("tailrack-certificate"), _program("tailrack-answer"), *answers),
        },
        facts={
            "join": {"sshd_port": whole(1, 65535), "host_key": ed25519},
            "register": {"certificate": certificate, "authorities": authorities},
        },
    )


def _program(name: str) -> File:
    return File(f"/usr/local/sbin/{name}", template("ssh_trust", name), mode="0755")


def _timer(name: str) -> File:
    return File(f"/etc/systemd/system/{name}.timer", template("ssh_trust", f"{name}.timer"))
