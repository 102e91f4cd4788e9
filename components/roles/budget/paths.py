"""Paths of the budget on the head node."""

from __future__ import annotations

from components.node.state import STATE_DIR

PROGRAM = "/usr/local/lib/tailrack/budget"
UNITS = ("tailrack-budget.service", "tailrack-budget.timer")
# The budget as JSON (spending.py), which `tailrack costs` of all users reads.
BUDGET = "/etc/tailrack/budget"
# Receivers of messages, one a line, which users cannot read.
NOTIFY = "/etc/tailrack/budget-notify"
# While this file exists, job_submit.lua holds new jobs.
SPENT = f"{STATE_DIR}/budget-spent"
# While this file exists, Slurm may have jobs that the budget holds.
HOLDING = f"{STATE_DIR}/budget-holding"
# Lines `YYYY-MM AMOUNT PERCENT` of messages that were sent.
TOLD = f"{STATE_DIR}/budget-told"
