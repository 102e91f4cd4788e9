"""The proxy in /etc/environment for internet access: a step does not get it from its own environment."""

from __future__ import annotations

from components.node import files

_NAMES = {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}


def proxy_variables() -> dict[str, str]:
    """Return the environment variables of a proxy."""
    pairs = (line.removeprefix("export ").partition("=") for line in files.lines("/etc/environment"))
    return {name: value.strip("\"'") for name, _, value in pairs if name.lower() in _NAMES}
