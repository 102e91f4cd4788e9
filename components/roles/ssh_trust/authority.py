"""Two keys that exist only on the head node.

They are the authority that signs the nodes' SSH host keys, and the key with which the head node asks a node to leave
the cluster. Both are replaced together (turn.py).
"""

from __future__ import annotations

import time
from pathlib import PurePosixPath

from components.node import files
from components.node.log import note
from components.node.run import run
from components.node.step.step import STATE_DIR
from components.roles.ssh_trust.authorities import LEAVE
from components.roles.ssh_trust.sign import certificate
from components.roles.ssh_trust.trust import public_key, trust_authorities

AUTHORITY_KEY = f"{STATE_DIR}/ssh_authority"
LEAVE_KEY = f"{STATE_DIR}/leave_key"
# The list that all machines must trust, in their format (authorities.py).
TRUSTED = f"{STATE_DIR}/ssh_authority.trusted"
# The authority's generation (turn.py). Blank for a new authority, which takes the generation of the config.
GENERATION = f"{STATE_DIR}/ssh_authority.generation"
# A text that the role `restore` writes.
RESTORED = f"{STATE_DIR}/restored"
SIGN = "/usr/local/sbin/tailrack-sign"


def ensure_authority() -> None:
    """Create the keys that do not exist."""
    files.make_folder(STATE_DIR, 0o711)
    for key in (AUTHORITY_KEY, LEAVE_KEY):
        # ssh-keygen writes the public key last, so a key without it is incomplete.
        if not public_key(key):
            files.remove(key)
            if key == AUTHORITY_KEY:
                files.write(GENERATION, "")
            make_key(key, key)


def make_key(path: str, key: str) -> None:
    """Create a key pair. `key`: the path that it is for"""
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"tailrack {PurePosixPath(key).name}", "-f", path)
    note(f"created {path}")


def trust_own() -> str:
    """Write the list, trust it on the head node, and return it.

    It gets a new number if its keys have changed, or after a restore from a backup: nodes may already have a newer list
    than the backup.
    """
    keys = _public_keys(AUTHORITY_KEY, ".next", ".last")
    keys += [f"{LEAVE}{key}" for key in _public_keys(LEAVE_KEY, ".next")]
    first, *present = files.lines(TRUSTED) or [""]
    if present != keys or files.is_newer(RESTORED, TRUSTED):
        number = first.removeprefix("# ")
        after = int(number) + 1 if number.isdecimal() else 0
        files.write(TRUSTED, "\n".join([f"# {max(int(time.time()), after)}", *keys]))
    text = trusted()
    trust_authorities(text)
    return text


def trusted() -> str:
    """Return the list that all machines must trust."""
    return (files.read(TRUSTED) or "").rstrip("\n")


def _public_keys(key: str, *ends: str) -> list[str]:
    return sorted({found for end in ("", *ends) if (found := public_key(f"{key}{end}"))})


def certificate_for(node: str, address: str, host_key: str) -> str:
    """Return the certificate of a machine's host key, for its name and address."""
    return certificate(node, f"{node},{address}", host_key).rstrip("\n")
