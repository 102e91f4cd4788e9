"""Try whether the account that manages this node can log in."""

from __future__ import annotations

import os
import secrets

from components.node import files
from components.node.run import attempt, run
from components.roles.ssh_trust import sshd

_PROGRAM = "/usr/sbin/sshd"
_LIMIT = 30


def managing_login() -> str:
    """Return the account that this step logged in with."""
    return os.environ.get("SUDO_USER") or "root"


def manager_enters(service: str) -> bool:
    """Return whether that account can log in through a PAM stack.

    This is a complete login by sshd. sshd speaks over pipes, so no port and no other setting matters, and uses a key
    that exists only during this function.
    """
    # sshd reads the key as the account, so not in a folder that only root can enter.
    folder = f"/run/tailrack-login.{secrets.token_hex(8)}"
    files.make_folder(folder, 0o711)
    try:
        return _log_in(folder, service)
    finally:
        files.remove_folder(folder)


def _log_in(folder: str, service: str) -> bool:
    key = files.on_disk(f"{folder}/key")
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    config = [
        "HostKey /etc/ssh/ssh_host_ed25519_key",
        "UsePAM yes",
        "PermitRootLogin yes",
        f"AuthorizedKeysFile {key}.pub",
    ]
    program = _PROGRAM
    if "\npamservicename " in f"\n{sshd.query('-T')}":
        config.append(f"PAMServiceName {service}")
    else:
        # Before OpenSSH 9.8 the stack is named after the program.
        files.link(f"{folder}/{service}", _PROGRAM)
        program = files.on_disk(f"{folder}/{service}")
    files.write(f"{folder}/config", "\n".join(config))
    options = (
        "IdentitiesOnly=yes",
        "BatchMode=yes",
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        f"ProxyCommand={program} -i -f {files.on_disk(folder)}/config",
    )
    words = ("ssh", "-n", "-F", "/dev/null", "-i", key, *(word for option in options for word in ("-o", option)))
    return attempt(*words, f"{managing_login()}@here", "true", limit=_LIMIT).ok
