"""Find out whether limits of users' slices have an effect on this machine."""

from __future__ import annotations

from components.node import files, kernel, packages
from components.node.log import note
from components.node.run import attempt, exists
from components.roles.ssh_trust import sshd

_PACKAGE = "libpam-systemd"
_LOGIND = "systemd-logind.service"
_SESSION = "/etc/pam.d/common-session"
_CGROUPS = "/sys/fs/cgroup"
_CONTROLLERS = {"memory", "cpu", "pids"}


def why_not_limited(host: str) -> str:
    """Return why slices of users limit nothing here: `controllers`, `logins`, or `none` if they do."""
    if lacking := sorted(_CONTROLLERS - _controllers()):
        note(f"users are not limited: systemd does not control {', '.join(lacking)} on this machine")
        return "controllers"
    _ensure_user_slices(host)
    if not any("pam_systemd.so" in line.partition("#")[0] for line in files.lines(_SESSION)):
        note(f"users are not limited: {_SESSION} has no pam_systemd.so")
        return "logins"
    if exists("sshd") and "usepam yes" not in sshd.query("-T").splitlines():
        note("users are not limited: sshd does not use PAM")
        return "logins"
    return "none"


def _controllers() -> set[str]:
    """Return the controllers that systemd can use for slices, in either version of cgroups."""
    parent = attempt("systemctl", "show", "-P", "ControlGroup", "system.slice").output.strip().rpartition("/")[0]
    unified = kernel.read(f"{_CGROUPS}{parent}/cgroup.controllers").split()
    # In version 1, each has its own hierarchy.
    return {*unified, *kernel.names_in(_CGROUPS)} & _CONTROLLERS


def _ensure_user_slices(host: str) -> None:
    """Install the module that puts log-ins into slices, unless the machine's owner has turned its service off.

    Cloud images have it; the smallest images of Debian lack it.
    """
    if not packages.missing_of([_PACKAGE]) or attempt("systemctl", "is-enabled", _LOGIND).output.strip() == "masked":
        return
    packages.try_ensure(host, _PACKAGE)
    attempt("systemctl", "start", _LOGIND)
