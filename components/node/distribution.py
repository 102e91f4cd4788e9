"""The distribution of this machine."""

from __future__ import annotations

from collections.abc import Mapping

from components.node import files
from components.node.run import run


def os_release() -> Mapping[str, str]:
    """Return the values of /etc/os-release."""
    lines = files.lines(files.followed("/etc/os-release"))
    pairs = (line.split("=", 1) for line in lines if "=" in line)
    return {name: value.strip("\"'") for name, value in pairs}


def architecture() -> str:
    """Return the architecture of packages, such as amd64."""
    return run("dpkg", "--print-architecture").strip()
