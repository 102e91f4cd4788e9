"""The command `certificate`: install a certificate for sshd, if it is for this machine's host key, from an authority of
the cluster, and newer than the installed one.

    tailrack-certificate FILE   run by tailrack-certificate.timer with the head node's file on the share
    tailrack-certificate -      the certificate that the head node has made, from stdin (tailrack-answer)
"""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Iterable, Sequence

from components.node import files, services
from components.node.program import run_program
from components.node.run import attempt
from components.roles.pod.saved import save_again
from components.roles.ssh_trust import sshd
from components.roles.ssh_trust.authorities import AUTHORITIES

HOST_KEY_FILE = "/etc/ssh/ssh_host_ed25519_key"
SHOWN = f"{HOST_KEY_FILE}-cert.pub"
# The host key of a pod's own SSH server, which outlives the container (pod.py).
POD_KEY_FILE = "/etc/ssh/tailrack_host_key"
POD_SERVICE = "sshd"
_MOST = 8192
# If the share is away, a read hangs.
_READ_SECONDS = 60


def main(arguments: Sequence[str]) -> int:
    """Run the program and return the exit status."""
    return run_program("tailrack-certificate", lambda: _install_from(arguments[0]))


def _install_from(source: str) -> int:
    if source == "-":
        install(sys.stdin.read(_MOST))
        save_again()
        return 0
    ended = attempt("cat", source, limit=_READ_SECONDS)
    if ended.ok:
        install(ended.output)
    return ended.status


def install(text: str) -> None:
    """Install a certificate if it is valid and newer. Raises Failure if sshd rejects its configuration."""
    path = f"{host_key_file()}-cert.pub"
    certificate, shown = text.split("\n")[0], (files.read(path) or "").rstrip("\n")
    if certificate != shown and _number(certificate) > _number(shown):
        files.write(path, certificate)
        if services.on_runit():
            _restart_pods_server()
        else:
            sshd.reload_valid()


def _restart_pods_server() -> None:
    # The first certificate comes before the server.
    if services.is_active(POD_SERVICE):
        services.restart(POD_SERVICE)


def host_key_file() -> str:
    """Return the file of the host key that the head node knows."""
    return POD_KEY_FILE if files.exists(POD_KEY_FILE) else HOST_KEY_FILE


def _number(certificate: str) -> int:
    """Return a certificate's serial number, which grows; -1 if it is not for this key or not from an authority.

    ssh-keygen checks the authority's signature.
    """
    rows: dict[str, list[str]] = {}
    if certificate:
        shown = attempt("ssh-keygen", "-L", "-f", "-", stdin=f"{certificate}\n", quiet=True).output
        rows = {words[0]: words for line in shown.splitlines() if (words := line.split())}
    key, authority = (rows.get(name, [])[3:4] for name in ("Public", "Signing"))
    if not (key and authority and key[0] in _fingerprints(files.lines(f"{host_key_file()}.pub"))):
        return -1
    return int(rows["Serial:"][1]) if authority[0] in _fingerprints(files.lines(AUTHORITIES)) else -1


def _fingerprints(lines: Iterable[str]) -> set[str]:
    """Return the fingerprints of public keys, one per line."""
    keys = (base64.b64decode(line.split()[1]) for line in lines if line.startswith("ssh-"))
    return {f"SHA256:{base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip('=')}" for key in keys}
