"""The timer that checks a node's mounts."""

from __future__ import annotations

from components.node import files, systemd
from components.node.run import attempt
from components.roles.mounts import units
from components.roles.mounts.wanted import LIST
from components.validation.preflight.mounts import RESULTS

_PROGRAM = "/usr/local/sbin/tailrack-mounts"
_TIMER, _SERVICE = "tailrack-mounts.timer", "tailrack-mounts.service"


def install_watch(program: str, timer: str, service: str) -> None:
    """Install the program and its timer, and start that. The arguments are texts of files."""
    files.write(_PROGRAM, program, 0o755)
    files.write(f"{systemd.UNITS}/{_TIMER}", timer)
    files.write(f"{systemd.UNITS}/{_SERVICE}", service)
    systemd.reload(_TIMER, _SERVICE)
    systemd.enable(_TIMER, now=True)


def remove_watch() -> None:
    """Remove everything of it. The service may be what calls this, so it is not stopped."""
    attempt("systemctl", "disable", "-q", "--now", _TIMER, quiet=True)
    for path in (f"{systemd.UNITS}/{_TIMER}", f"{systemd.UNITS}/{_SERVICE}", _PROGRAM, LIST, f"/{RESULTS}"):
        files.remove(path)
    files.remove(units.RECORD)
    attempt("systemctl", "daemon-reload")


def is_installed() -> bool:
    """Return whether this node has, or had, mounts."""
    return any(files.exists(path) for path in (_PROGRAM, LIST, units.RECORD, f"{systemd.UNITS}/{_TIMER}"))
