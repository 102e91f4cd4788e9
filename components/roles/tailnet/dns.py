"""This machine's DNS servers, and whether they answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from components.node import files, folders
from components.node.run import succeeds

# Behind systemd-resolved's stub, the second has its upstream servers.
_LISTS = ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")
_SOURCES = "/etc/apt/sources.list"
_SOURCE = re.compile(r"^(?:deb |URIs:).*?https?://([^/ :\s]+)", re.MULTILINE)
# Names of package sources to try.
_MOST_NAMES = 3
_LIMIT_SECONDS = 10


def dns_servers() -> list[str]:
    """Return the addresses of the DNS servers."""
    texts = (folders.read_theirs(files.followed(path)) or "" for path in _LISTS)
    words = (line.split() for text in texts for line in text.splitlines())
    return list(dict.fromkeys(word[1] for word in words if len(word) > 1 and word[0] == "nameserver"))


def resolves(name: str) -> bool:
    """Return whether DNS knows a name. /etc/hosts would answer without it."""
    return succeeds("getent", "-s", "dns", "hosts", name, limit=_LIMIT_SECONDS)


def name_that_resolves(control_url: str) -> str:
    """Return a name that resolves now, from the package sources or the control server; empty without one."""
    return next((name for name in _names(control_url) if resolves(name)), "")


def _names(control_url: str) -> Iterator[str]:
    folder = f"{_SOURCES}.d"
    paths = [_SOURCES, *(f"{folder}/{name}" for name in files.names_in(folder))]
    found = {name for path in paths for name in _SOURCE.findall(files.read(path) or "")}
    yield from sorted(found)[:_MOST_NAMES]
    if name := urlsplit(control_url).hostname:
        yield name
