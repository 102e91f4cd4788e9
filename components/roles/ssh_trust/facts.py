"""Public keys and certificates that machines report."""

from __future__ import annotations

import base64

from components.roles.facts import matching
from components.roles.ssh_trust.certificate import AUTHORITIES_LIST, PUBLIC_KEY

CERTIFICATE = "ssh-ed25519-cert-v01@openssh.com"


ed25519 = matching(PUBLIC_KEY)
authorities = matching(AUTHORITIES_LIST)


def certificate(value: object) -> str:
    """Read a certificate of an ed25519 key, as `ssh-ed25519-cert-v01@openssh.com BASE64`; its comment is left out."""
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError
    kind, text, *_ = [*value.split(" "), "", ""]
    # The kind is also written inside of it, after its length.
    if kind != CERTIFICATE or not base64.b64decode(text, validate=True)[4:].startswith(kind.encode()):
        raise ValueError
    return f"{kind} {text}"
