"""Ask slurmctld."""

from __future__ import annotations

from components.node.run import attempt


def answers() -> bool:
    """Return whether slurmctld answers."""
    return "is UP" in attempt("scontrol", "ping", quiet=True).output
