"""What slurmctld says, asked by scontrol; releases from 23.11 on."""

from __future__ import annotations

import subprocess

from components.validation.slurm_nodes import Node, read_nodes

LIMIT_SECONDS = 30


class SlurmError(Exception):
    """slurmctld did not answer, or refused: what to tell a person."""


def nodes(*names: str) -> list[Node]:
    """Ask slurmctld for all nodes, or for some. Raises SlurmError."""
    said = scontrol("show", "nodes", *([",".join(names)] if names else []), "--json")
    try:
        return read_nodes(said)
    except ValueError:
        raise SlurmError("scontrol does not print nodes as JSON here; see 'scontrol show nodes --json'") from None


def scontrol(*words: str) -> str:
    """Run scontrol and return what it prints. Raises SlurmError with what it says."""
    try:
        done = subprocess.run(
            ["scontrol", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise SlurmError("there is no scontrol here; run it on the head node") from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"slurmctld has not answered for {LIMIT_SECONDS} s; see 'journalctl -u slurmctld'") from None
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())
        raise SlurmError(f"{' '.join(['scontrol', *words[:2]])}: {said or f'exit status {done.returncode}'}")
    return done.stdout
