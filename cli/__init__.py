"""What the Makefile calls: find an engine, prepare the lab, run the stack, show progress and the result."""
