"""The tailnet of a stack: how its machines get in, what its policy has to hold, how they go from its list."""
