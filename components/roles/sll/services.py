"""Install the command `sll` and its reader, which a socket starts when somebody watches."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files, systemd
from components.node.files import File
from components.node.run import run
from components.node.step.step import Step
from components.roles.sll.remove import COMMAND, READER, SERVICE, SOCKET, remove_reader


@dataclass(frozen=True)
class SllValues:
    """Texts of the command, of the reader and of the reader's units.

    sll_shared   whether all users may see the same jobs (no PrivateData)
    """

    sll_program: str
    sll_reader: str
    sll_shared: bool
    sll_socket: str
    sll_service: str


def services(step: Step, values: SllValues) -> None:
    """Install both, or only the command."""
    files.write(COMMAND, values.sll_program, 0o755)
    if not values.sll_shared:
        remove_reader()
        return
    changed = files.write_all(
        [
            File(READER, values.sll_reader, 0o755),
            File(f"{systemd.UNITS}/{SERVICE}", values.sll_service),
            File(f"{systemd.UNITS}/{SOCKET}", values.sll_socket),
        ]
    )
    systemd.reload(SOCKET, SERVICE)
    systemd.enable(SOCKET)
    # This also ends a reader of the old version; the next viewer starts the new one.
    if changed or not systemd.is_active(SOCKET):
        run("systemctl", "stop", SERVICE, SOCKET)
        run("systemctl", "start", SOCKET)
