"""The library with which programs of a pod use the tailnet (templates/tailnet.c)."""

from __future__ import annotations

import hashlib

from components.roles.pod.paths import PROXY, SOCKET

_FOLDER = "/usr/local/lib/tailrack"
SOURCE = f"{_FOLDER}/tailnet.c"
CONF = "/etc/tailrack/tailnet-preload"


def library_path(source: str) -> str:
    """Return the path of the library that is built from a source."""
    return f"{_FOLDER}/tailnet-{hashlib.sha256(source.encode()).hexdigest()[:12]}.so"


def conf_text(address: str) -> str:
    """Return the library's configuration for a pod with this tailnet address."""
    return f"{address} {PROXY} {SOCKET}"
