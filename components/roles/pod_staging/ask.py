"""The command `pod-staging-ask`: slurmctld asks root's service to bring a job's folder, and waits.

pod-staging-ask in|out JOB
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence

from components.roles.pod_staging.paths import SOCKET

# Slurm would end this program after 120 s. The service goes on without it.
_SECONDS = 110


def main(arguments: Sequence[str]) -> int:
    """Return 0 in every case: the service cancels a job whose folder did not arrive."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_SECONDS)
        try:
            connection.connect(SOCKET)
            connection.sendall(f"{' '.join(arguments)}\n".encode())
            while connection.recv(64):
                pass
        except OSError as error:
            sys.stderr.write(f"pod-staging {' '.join(arguments)}: {error}\n")
            # Slurm requeues and holds a job that has not got its folder.
            return 1 if arguments[:1] == ["in"] else 0
    return 0
