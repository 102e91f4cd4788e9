"""systemd's units: start them at boot and now, and make it read changed files as rarely as possible."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from components.node import files
from components.node.failure import Failure
from components.node.locks import PRIVATE
from components.node.log import printable
from components.node.run import attempt, run, succeeds
from components.node.waiting import wait_until

if TYPE_CHECKING:
    from components.node.step.step import Step

UNITS = "/etc/systemd/system"
# A service that has run for this long after its start stays up, and the others get this long.
_FRESH_SECONDS, _SETTLE_SECONDS = 2, 10
_PROPERTIES = ("Id", "Restart", "SubState", "NRestarts", "ActiveEnterTimestampMonotonic")
# It exists while a reload is needed, also if a step was cut off before its reload.
_UNREAD = f"{PRIVATE}/units-unread"
_UNUSUAL = re.compile(r"[^A-Za-z0-9:_.]")


class _Stale:
    """Units that systemd may have to reload, and whether it has to, which nothing has waited for yet (reload_later)."""

    units: tuple[str, ...] = ()
    surely = False


class _Boot:
    """Units that a step links for the next boot with one call at its end; None outside a step, or after that."""

    units: list[str] | None = None


def name_of_path(path: str) -> str:
    """Return the name of a path's units without its ending, such as `srv-data` for /srv/data."""
    name = "-".join(_UNUSUAL.sub(_as_number, part) for part in path.split("/") if part) or "-"
    return re.sub(r"^\.", _as_number, name)


def _as_number(letter: re.Match[str]) -> str:
    return "".join(f"\\x{byte:02x}" for byte in letter[0].encode())


def reload(*units: str) -> None:
    """Make systemd read the current files of units, if it has an old version of one.

    A reload takes a quarter of a second, and systemd finds units that it has not loaded without one.
    """
    known = set(run("systemctl", "show", "-P", "NeedDaemonReload", "-P", "DropInPaths", *units).split())
    # systemd of Debian 12 answers "no" if a unit's .d folder is newer than its last reload.
    drop_ins = (f"{UNITS}/{unit}.d" for unit in units)
    paths = {f"{folder}/{name}" for folder in drop_ins for name in files.names_in(folder) if name.endswith(".conf")}
    if "yes" in known or not paths <= known:
        _reload_all()


def reload_later(step: Step, *units: str) -> None:
    """Reload units that nothing in this step waits for, with the next reload or at the end of the step.

    Without names the reload is needed; units are reloaded only if systemd has an old version of one.
    """
    if not _Stale.units and not _Stale.surely:
        step.later.append(reload_stale)
        step.at_end.append(_forget_stale)
    _Stale.units, _Stale.surely = (*_Stale.units, *units), _Stale.surely or not units
    if not units:
        files.write(_UNREAD, "")


def reload_stale() -> None:
    """Reload now what `reload_later` left for later."""
    if _Stale.surely or files.exists(_UNREAD):
        _reload_all()
    elif _Stale.units:
        reload(*_Stale.units)
        _forget_stale()


def _reload_all() -> None:
    run("systemctl", "daemon-reload")
    files.remove(_UNREAD)
    _forget_stale()


def _forget_stale() -> None:
    _Stale.units, _Stale.surely = (), False


def enable(*units: str, now: bool = False) -> None:
    """Start units at every boot, from the end of this step on; with `now` also at once."""
    if _Boot.units is None:
        _link(*units)
    else:
        _Boot.units += units
    if now:
        run("systemctl", "start", *units)


def _link(*units: str) -> None:
    # --root=/ makes only the links for the next boot, without systemd, which would mark all loaded units as outdated.
    # Skip update-rc.d too: it reloads systemd for daemons with a script in /etc/init.d.
    run("systemctl", "--root=/", "enable", "-q", *units, environment={"SYSTEMCTL_SKIP_SYSV": "1"})


def begin_step() -> None:
    """Let `enable` wait for `end_step`."""
    _Boot.units = []


def end_step() -> None:
    """Link the units that this step enabled, also if it failed. A killed step runs again."""
    units, _Boot.units = _Boot.units, None
    if units:
        _link(*units)


def restart_later(unit: str) -> None:
    """Restart a unit without waiting until it is ready."""
    run("systemctl", "restart", "--no-block", unit)


def is_active(unit: str) -> bool:
    """Return whether a unit runs."""
    return succeeds("systemctl", "is-active", "-q", unit)


def keep_running(*units: str) -> None:
    """Make systemd always restart these units. Running daemons go on.

    Its default is to stop after five starts in ten seconds, and most packages restart their daemons only in some cases
    or never. The delay grows; a systemd before 254 uses the first delay.
    """
    write_restart(*units)
    reload(*units)


def write_restart(*units: str) -> None:
    """Write the files of `keep_running`. The caller reloads the units with others, perhaps later."""
    for unit in units:
        files.write(f"{UNITS}/{unit}.d/tailrack-restart.conf", _ALWAYS_RESTART)


_ALWAYS_RESTART = """# Written by tailrack: always restart.
[Unit]
StartLimitIntervalSec=0

[Service]
Restart=always
RestartPreventExitStatus=
RestartSec=2
RestartSteps=6
RestartMaxDelaySec=20"""


def retire(*units: str) -> None:
    """Stop units that the cluster created, and remove their files."""
    removed = False
    for unit in units:
        if not files.exists(f"{UNITS}/{unit}"):
            continue
        removed = True
        # A template itself does not run; its instances end when their work is done.
        if "@." not in unit:
            attempt("systemctl", "disable", "-q", "--now", unit)
        files.remove(f"{UNITS}/{unit}")
    if removed:
        run("systemctl", "daemon-reload")


def retire_daemon(name: str) -> None:
    """Stop and disable a package's daemon that the cluster uses.

    The role `machine` removes the additions to its unit last, because they mark it as the cluster's.
    """
    if files.exists(f"{UNITS}/{name}.service.d/tailrack.conf"):
        attempt("systemctl", "disable", "-q", "--now", f"{name}.service")


def require_services(host: str) -> None:
    """Raise Failure if a service of the cluster, which systemd always restarts, ends again and again."""
    unsettled: list[Mapping[str, str]] = []

    def settled() -> bool:
        unsettled[:] = [service for service in _services() if not _stays_up(service)]
        return not unsettled

    if wait_until(settled, _SETTLE_SECONDS):
        return
    failing = [unit["Id"] for unit in unsettled if unit["SubState"] != "running" or unit["NRestarts"] != "0"]
    if failing:
        query = (f"_SYSTEMD_UNIT={failing[0]}", "-n", "1", "-o", "cat", "--no-pager")
        line = printable(attempt("journalctl", *query, quiet=True).output.strip(), 300)
        raise Failure(
            f"{', '.join(failing)} on {host} ends again and again{f': {line}' if line else ''}",
            f"see 'journalctl -u {failing[0]}' on {host}, then run up again",
        )


def _services() -> list[Mapping[str, str]]:
    """Return the properties of the cluster's services that systemd restarts; none without systemd."""
    listed = attempt("systemctl", "list-units", "--all", "--plain", "--no-legend", "tailrack-*.service", quiet=True)
    names = [line.split()[0] for line in listed.output.splitlines() if line.strip()]
    if not listed.ok or not names:
        return []
    asked = [word for name in _PROPERTIES for word in ("-p", name)]
    shown = attempt("systemctl", "show", *asked, *names, quiet=True).output
    services = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in shown.split("\n\n")]
    return [service for service in services if service.keys() >= {*_PROPERTIES} and service["Restart"] != "no"]


def _stays_up(service: Mapping[str, str]) -> bool:
    """Return whether a service runs for a while, or was stopped on purpose."""
    if service["SubState"] == "running":
        return time.monotonic() - int(service["ActiveEnterTimestampMonotonic"]) / 1e6 >= _FRESH_SECONDS
    return service["SubState"] not in ("auto-restart", "failed")
