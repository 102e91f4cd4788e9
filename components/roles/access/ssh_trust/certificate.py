"""A machine's host certificate, and the authorities that it trusts.

The head node is a certificate authority, every node presents a certificate from it, and all machines trust the
authority.

    tailrack-certificate FILE   run by tailrack-certificate.timer with the head node's file on the share
    tailrack-certificate -      the certificate that the head node has made, from stdin (tailrack-answer)

The list of authorities has a line `# NUMBER`, one line per key, then a line `# leave KEY` with the head node's key for
tailrack-leave. During a change there are two of each (authority.py). The number grows with each change, so a delayed
older list is ignored.
"""

import base64
import hashlib
import re
import sys
from collections.abc import Iterable, Sequence

from components.node import files, services, systemd
from components.node.failure import Failure, run_program
from components.node.locks import Lock
from components.node.run import attempt
from components.roles.access.ssh_trust import sshd
from components.roles.pods.pod.saved import save_again

AUTHORITIES = "/etc/ssh/tailrack_authority.pub"
# The only keys with which the head node can log in as root.
LEAVE_KEY_FILE = "/etc/ssh/tailrack_leave_key"
# Prefix of the key with which the head node asks a machine to leave.
LEAVE = "# leave "
LEAVE_PROGRAM = "/usr/local/sbin/tailrack-leave"
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI[A-Za-z0-9+/]{43}"
AUTHORITIES_LIST = rf"# ([1-9][0-9]{{0,17}})(\n{PUBLIC_KEY}){{1,3}}(\n{LEAVE}{PUBLIC_KEY}){{1,2}}"
_LOCK_SECONDS = 60
_MOST = 2048
HOST_KEY_FILE = "/etc/ssh/ssh_host_ed25519_key"
SHOWN = f"{HOST_KEY_FILE}-cert.pub"
# The host key of a pod's own SSH server, which outlives the container (pod.py).
POD_KEY_FILE = "/etc/ssh/tailrack_host_key"
POD_SERVICE = "sshd"
_MOST_CERTIFICATE = 8192
# If the share is away, a read hangs.
_READ_SECONDS = 60
_SSHD_CONF = "/etc/ssh/sshd_config.d/tailrack.conf"
_SERVICE = """[Unit]
Description=Certificates of SSH host keys

[Service]
Type=oneshot
"""


def show_authorities(arguments: Sequence[str]) -> int:
    """Answer the head node, and return the exit status.

    Trust the authorities and the leave key that it has, from stdin, and no others from then on.
    """
    text = sys.stdin.read(_MOST).rstrip("\n")
    return run_program("", lambda: _follow(text))


def _follow(text: str) -> None:
    before = re.match('restrict,from="([^"]+)"', files.read(LEAVE_KEY_FILE) or "")
    if not before:
        raise Failure(f"{LEAVE_KEY_FILE} does not name the head node's address")
    trust_authorities(text)
    let_ask(before[1])
    save_again()


def number() -> int:
    """Return the number of the current list; 0 without one."""
    first = re.fullmatch("# ([0-9]+)", next(iter(files.lines(AUTHORITIES)), ""))
    return int(first[1]) if first else 0


def let_ask(address: str) -> None:
    """Authorize requests from an address.

    They are the leave keys for tailrack-leave, and certificates that an authority signed for tailrack-ask.
    """
    options = f'restrict,from="{address}"'
    ask = 'cert-authority,principals="tailrack-ask",command="/usr/local/sbin/tailrack-answer"'
    with _lock():
        lines = files.lines(AUTHORITIES)
        leave = (line.removeprefix(LEAVE) for line in lines if line.startswith(f"{LEAVE}ssh-"))
        keys = [f'{options},command="{LEAVE_PROGRAM}" {key} tailrack-leave' for key in leave]
        keys += [f"{options},{ask} {line} tailrack-ask" for line in lines if line.startswith("ssh-")]
        files.write(LEAVE_KEY_FILE, "\n".join(keys))


def _lock() -> Lock:
    """Return the lock for both files: a step and a request of the head node may arrive at the same time."""
    return Lock("authorities", seconds=_LOCK_SECONDS)


def main(arguments: Sequence[str]) -> int:
    """Run the program and return the exit status."""
    return run_program("tailrack-certificate", lambda: _install_from(arguments[0]))


def _install_from(source: str) -> int:
    if source == "-":
        install(sys.stdin.read(_MOST_CERTIFICATE))
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
        if not services.on_runit():
            sshd.reload_valid()
        # The first certificate comes before a pod's server.
        elif services.is_active(POD_SERVICE):
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


def public_key(path: str) -> str:
    """Return the public key of a private key's file, without its comment; empty without one."""
    return " ".join((files.read(f"{path}.pub") or "").split()[:2])


def trust_authorities(text: str) -> None:
    """Trust the authorities of a list, unless a newer list came before."""
    found = re.fullmatch(AUTHORITIES_LIST, text)
    if not found:
        raise Failure(
            "the head node's list of SSH authorities is not a list of keys",
            "inspect the head node: another program there answers instead of tailrack's steps",
        )
    with _lock():
        if int(found[1]) > number():
            files.write(AUTHORITIES, text)


def show_certificate(text: str) -> None:
    """Present the certificate of this machine's host key. A step may bring one that was signed long ago."""
    changed = files.write(_SSHD_CONF, f"HostCertificate {SHOWN}")
    install(text)
    # If that installed a newer one, sshd has read this file too.
    if changed and not files.is_newer(SHOWN, _SSHD_CONF):
        sshd.reload_valid()


def ensure_timer(name: str, *commands: str) -> None:
    """Make an existing timer run commands."""
    starts = "\n".join(f"ExecStart={command}" for command in commands)
    files.write(f"{systemd.UNITS}/{name}.service", f"{_SERVICE}{starts}")
    systemd.reload(f"{name}.timer", f"{name}.service")
    systemd.enable(f"{name}.timer", now=True)
