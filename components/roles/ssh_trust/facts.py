"""Public keys and certificates that machines report."""

from __future__ import annotations

import base64
import re

from components.roles.ssh_trust.certificate import LEAVE
from components.settings.ssh_keys import ED25519, check_key

CERTIFICATE = "ssh-ed25519-cert-v01@openssh.com"


def ed25519(value: object) -> str:
    """Read a public key, as `ssh-ed25519 BASE64`."""
    kind, _, text = value.partition(" ") if isinstance(value, str) else ("", "", "")
    if kind != ED25519:
        raise ValueError
    check_key(kind, text)
    return f"{kind} {text}"


def certificate(value: object) -> str:
    """Read a certificate of an ed25519 key, as `ssh-ed25519-cert-v01@openssh.com BASE64`; its comment is left out."""
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError
    kind, text, *_ = [*value.split(" "), "", ""]
    # The kind is also written inside of it, after its length.
    if kind != CERTIFICATE or not base64.b64decode(text, validate=True)[4:].startswith(kind.encode()):
        raise ValueError
    return f"{kind} {text}"


def authorities(value: object) -> str:
    """Read a list of authorities: a line `# NUMBER`, one to three keys, and one or two lines `# leave KEY`."""
    first, *lines = value.split("\n") if isinstance(value, str) else ("",)
    keys = [line for line in lines if not line.startswith(LEAVE)]
    leave = lines[len(keys) :]
    number = re.fullmatch(r"# [1-9][0-9]{0,17}", first)
    if not number or keys != lines[: len(keys)] or not (1 <= len(keys) <= 3 and 1 <= len(leave) <= 2):
        raise ValueError
    return "\n".join([first, *map(ed25519, keys), *(LEAVE + ed25519(line.removeprefix(LEAVE)) for line in leave)])
