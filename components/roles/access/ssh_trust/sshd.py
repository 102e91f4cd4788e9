"""Query and reload sshd."""

import sys

from components.node import files, systemd
from components.node.log import note
from components.node.run import Ended, ProgramFailed, attempt, run

_TRIES = 5
_NO_FOLDER = "Missing privilege separation directory"
DEFAULT_PORT = 22


def query(*arguments: str) -> str:
    """Return sshd's answer about its configuration. Raises ProgramFailed."""
    ended = _ask(*arguments)
    if not ended.ok:
        raise ProgramFailed("sshd", ended.status, f"'sshd {' '.join(arguments)}' failed with status {ended.status}")
    return ended.output


def _ask(*arguments: str) -> Ended:
    """Run sshd, which fails without its runtime folder.

    If a socket starts sshd, the folder may exist only while it runs (Ubuntu 24.04). An sshd that ends removes it,
    possibly right now, so retry.
    """
    for _ in range(_TRIES):
        files.make_folder("/run/sshd")
        ended = attempt("sshd", *arguments, keep_errors=True)
        if ended.ok or _NO_FOLDER not in ended.errors:
            break
    sys.stderr.write(ended.errors)
    return ended


def port() -> int:
    """Return sshd's first port."""
    ended = _ask("-T")
    if not ended.ok:
        note(f"sshd does not report its port; using {DEFAULT_PORT}")
    rows = (line.split() for line in ended.output.splitlines())
    return next((int(row[1]) for row in rows if row[:1] == ["port"]), DEFAULT_PORT)


def reload() -> None:
    """Make sshd read its configuration again. Open sessions survive a restart.

    An inactive sshd reads it when its socket starts it. An sshd that a socket started ends on a reload ("Cannot bind
    any address"), so restart it.
    """
    if not systemd.is_active("ssh"):
        return
    if systemd.is_active("ssh.socket") or not attempt("systemctl", "reload", "ssh").ok:
        run("systemctl", "restart", "ssh")


def reload_valid() -> None:
    """Make sshd read its configuration again. Raises ProgramFailed if it is not valid."""
    query("-t")
    reload()


def came_with_us() -> bool:
    """Return whether tailrack installed the SSH server."""
    return "openssh-server" in files.lines("/var/lib/tailrack/packages")
