"""Create the authority's keys, which never leave the head node, and trust the authority here."""

from __future__ import annotations

from components.node.step.step import Step
from components.roles.ssh_trust.authority import ensure_authority, trust_own


def head(step: Step) -> None:
    """Create and trust."""
    ensure_authority()
    trust_own()
