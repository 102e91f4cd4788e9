"""Slurm: the controller on the head node, slurmd on every node that runs jobs."""
