"""Building blocks for sections of the stack config: keys, problems, value types. No pulumi."""
