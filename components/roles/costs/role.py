"""The record of costs on the head node: when each machine was in the cluster, and at what price."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role

# The folder with one file for each node; `tailrack costs` reads it (components/roles/tailrack_command/book.py).
BOOK = "/var/lib/tailrack/costs"


def role(_settings: ClusterSettings) -> Role:
    """Return the role. Every cluster has it, because the times are useful without prices too."""
    return Role("costs", after=("tailrack_command",), state=(BOOK,), on_pods=("register",))
