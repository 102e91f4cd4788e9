"""Accounting: job usage, accounts, limits and fair share, which slurmdbd keeps in a database on the head node."""
