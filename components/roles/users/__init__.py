"""People's accounts, the same on every node."""
