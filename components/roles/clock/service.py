"""The time service of a machine that has a clock."""

from __future__ import annotations

import time

from components.node.run import succeeds

# They exclude each other.
_SERVICES = ("systemd-timesyncd", "chrony", "ntpsec", "ntp", "openntpd")
_HINTS = {
    "systemd-timesyncd": "see 'timedatectl timesync-status', run 'systemctl restart systemd-timesyncd'",
    "chrony": "see 'chronyc sources', run 'chronyc makestep'",
}


def time_service() -> str:
    """Return the enabled time service; empty without one."""
    return next((name for name in _SERVICES if succeeds("systemctl", "-q", "is-enabled", name)), "")


def has_no_clock() -> bool:
    """Return whether this is a container, which uses its host's clock."""
    return succeeds("systemd-detect-virt", "-cq")


def remedy(right_time: float, host: str) -> str:
    """Return how to repair this machine's clock. `right_time`: in seconds since 1970."""
    if has_no_clock():
        return f"set the clock of the machine that the container {host} runs on"
    name = time_service()
    if not name:
        date = time.strftime("%F %T", time.gmtime(right_time))
        return (
            f"no time service runs on {host}, and up installs one only if the clock is near enough: set it once there "
            f"with date -u -s '{date}'"
        )
    hint = _HINTS.get(name, f"see 'journalctl -u {name}', run 'systemctl restart {name}'")
    return f"its time service {name} does not keep it right: {hint} on {host} (it needs outgoing UDP 123)"
