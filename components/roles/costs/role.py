"""What machines of the cluster cost: a book on the head node of who was in it from when to when, and at what price."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role

# A file a node; `tailrack costs` reads it (components/roles/tailrack_command/book.py).
BOOK = "/var/lib/tailrack/costs"


def role(_settings: ClusterSettings) -> Role:
    """In every cluster: since when a node is in it is asked for without a price too."""
    return Role("costs", after=("tailrack_command",), state=(BOOK,))
