"""Slurm: its nodes, its jobs, and every call of its commands. The standard library and components/node only."""
