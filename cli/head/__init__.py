"""Commands that run on a stack's head node."""
