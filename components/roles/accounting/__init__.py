"""Accounting: what jobs have used, kept by slurmdbd in a database on the head node; accounts, limits, fair share."""
