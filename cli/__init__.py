"""The commands of the Makefile: find an engine, prepare the lab, run the stack, show progress and the result."""
