"""The name of this node in Slurm, and the output of its programs."""

from __future__ import annotations

import os
import socket
import subprocess


def node_name() -> str:
    """Return the node's name in Slurm: two machines may have the same host name."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]


def output_of(*command: str, seconds: float = 10, must_succeed: bool = False) -> str | None:
    """Return a command's output, whatever its status; None if it cannot run or takes too long.

    must_succeed   return None for a status other than 0 too
    """
    try:
        process = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=must_succeed,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout


def stdout_of(*command: str) -> str:
    """Return a command's output, whatever its status; empty if it cannot run or takes too long."""
    return output_of(*command) or ""
