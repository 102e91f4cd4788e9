"""The clock: a time service, and the comparison with another machine's clock.

Certificates, packages and the time service need a time that is near enough; the reference is the tailnet's control
server, which every machine reaches. munge rejects credentials that are five minutes off, and programs compare times on
the share.
"""

from __future__ import annotations

import re
import socket
import time
from urllib.parse import urlsplit

from components.node import packages, systemd
from components.node.failure import Failure
from components.node.log import note
from components.node.run import attempt, run, succeeds
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.network.tailnet.tailscale import OWN_SERVER, status_of_all

# They exclude each other.
_SERVICES = ("systemd-timesyncd", "chrony", "ntpsec", "ntp", "openntpd")
_HINTS = {
    "systemd-timesyncd": "see 'timedatectl timesync-status', run 'systemctl restart systemd-timesyncd'",
    "chrony": "see 'chronyc sources', run 'chronyc makestep'",
}
# Allowed difference from the head node's clock in seconds. A working time service stays within one.
HEAD_LIMIT = 10
_ANSWER_SECONDS = 5
_MOST_BYTES = 65536
# Seconds. munge still works between two machines that differ by this much in opposite directions.
LIMIT = 120
# Seconds for a new time service to set the clock.
SET_SECONDS = 20


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


def http_time(host: str, port: int) -> float | None:
    """Return a server's time in seconds since 1970, from its unencrypted answer; None if it sends none."""
    from email.utils import parsedate_to_datetime

    try:
        with socket.create_connection((host, port), _ANSWER_SECONDS) as connection:
            connection.sendall(f"HEAD / HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
            answer = _read(connection)
    except OSError:
        return None
    for line in answer.split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "date":
            try:
                return parsedate_to_datetime(value.strip()).timestamp()
            except (ValueError, TypeError):
                return None
    return None


def _read(connection: socket.socket) -> str:
    """Read an answer to its end, within the time and size that a server may take."""
    end = time.monotonic() + _ANSWER_SECONDS
    parts = b""
    while len(parts) < _MOST_BYTES and time.monotonic() < end and (part := connection.recv(4096)):
        parts += part
    return parts.decode("latin-1")


def require_clock(other: float, limit: int, whose: str, host: str) -> None:
    """Raise Failure if this clock differs from another by more than a limit in seconds. `whose`: the other clock."""
    difference = round(time.time() - other)
    note(f"the clock is {abs(difference)}s from {whose}")
    if abs(difference) > limit:
        direction = "behind" if difference < 0 else "ahead of"
        raise Failure(
            f"the clock here is {abs(difference)}s {direction} {whose}", f"{remedy(other, host)}; then run up again"
        )


def compare_with_head(head_address: str, host: str) -> None:
    """Compare a node's clock with the head node's.

    The head node's tailscaled answers HTTP at an address that `tailscale status` shows.
    """
    port = _port_of_tailscaled(head_address)
    head_time = http_time(head_address, port) if port else None
    if head_time is None:
        note(f"the head node sends no time at {head_address}; clocks are not compared")
    else:
        require_clock(head_time, HEAD_LIMIT, "the head node's", host)


def _port_of_tailscaled(address: str) -> int | None:
    peers = ((status_of_all() or {}).get("Peer") or {}).values()
    start = f"http://{address}:"
    for url in (url for peer in peers for url in peer.get("PeerAPIURL") or ()):
        port = str(url).removeprefix(start).rstrip("/")
        if str(url).startswith(start) and port.isdigit():
            return int(port)
    return None


def check(step: Step, tailnet_control_url: str) -> None:
    """Compare the clock with the control server's."""
    place = _place(tailnet_control_url or OWN_SERVER)
    control_time = http_time(*place) if place else None
    if control_time is None:
        note(
            "the control server sends no time without encryption; nodes compare clocks with the head node as they join"
        )
    else:
        require_clock(control_time, LIMIT, "that of the tailnet's control server", step.host)


def _place(url: str) -> tuple[str, int] | None:
    """Return where the server answers without encryption, because a wrong clock rejects certificates.

    Most servers answer there, if only with a redirect. Another port of an encrypted server is encrypted too.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if not parts.hostname or not re.fullmatch(r"[A-Za-z0-9.-]+", parts.hostname):
        return None
    return parts.hostname, port or 80 if parts.scheme == "http" else 80


def join(step: Step) -> None:
    """Start the machine's time service."""
    if has_no_clock():
        return
    name = time_service()
    if not name:
        name = "systemd-timesyncd"
        packages.ensure(step.host, name)
        run("systemctl", "enable", "-q", name)
    if systemd.is_active(name):
        return
    if not attempt("systemctl", "start", name).ok:
        note(f"{name} does not start; see 'journalctl -u {name}'")
    elif not wait_until(_is_set, SET_SECONDS):
        note(f"{name} has not set the clock within {SET_SECONDS}s")


def _is_set() -> bool:
    return attempt("timedatectl", "show", "-p", "NTPSynchronized", "--value").output.strip() == "yes"
