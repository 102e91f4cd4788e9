"""Paths of the budget on the head node."""

from __future__ import annotations

# The budget as JSON (spending.py), which `tailrack costs` of all users reads.
BUDGET = "/etc/tailrack/budget"
