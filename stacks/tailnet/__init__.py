"""The tailnet of a stack: keys for its machines, its policy, and the removal of machines from its list."""
