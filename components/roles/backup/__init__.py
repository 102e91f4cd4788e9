"""Role backup: its settings, and what it gives the head node."""
