"""Known SSH host keys without a list of keys.

The head node is a certificate authority, every node presents a certificate from it, and all machines trust the
authority.
"""

from __future__ import annotations

from components.node import files, systemd
from components.node.failure import Failure
from components.roles.ssh_trust import authorities, certificate, sshd
from components.roles.ssh_trust.certificate import HOST_KEY_FILE as HOST_KEY_FILE
from components.roles.ssh_trust.certificate import SHOWN

_SSHD_CONF = "/etc/ssh/sshd_config.d/tailrack.conf"


def public_key(path: str) -> str:
    """Return the public key of a private key's file, without its comment; empty without one."""
    return " ".join((files.read(f"{path}.pub") or "").split()[:2])


def trust_authorities(text: str) -> None:
    """Trust the authorities of a list, unless a newer list came before."""
    if not authorities.is_sound(text):
        raise Failure(
            "the head node's list of SSH authorities is not a list of keys",
            "inspect the head node: another program there answers instead of tailrack's steps",
        )
    authorities.take(text)


def show_certificate(text: str) -> None:
    """Present the certificate of this machine's host key. A step may bring one that was signed long ago."""
    changed = files.write(_SSHD_CONF, f"HostCertificate {SHOWN}")
    certificate.install(text)
    # If that installed a newer one, sshd has read this file too.
    if changed and not files.is_newer(SHOWN, _SSHD_CONF):
        sshd.reload_valid()


def ensure_timer(name: str, *commands: str) -> None:
    """Make an existing timer run commands."""
    starts = "\n".join(f"ExecStart={command}" for command in commands)
    files.write(f"{systemd.UNITS}/{name}.service", f"{_SERVICE}{starts}")
    systemd.reload(f"{name}.timer", f"{name}.service")
    systemd.enable(f"{name}.timer", now=True)


_SERVICE = """[Unit]
Description=Certificates of SSH host keys

[Service]
Type=oneshot
"""
