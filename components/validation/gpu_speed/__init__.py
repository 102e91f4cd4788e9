"""Measure each GPU of a node, and compare it with its kind, with its neighbours and with its earlier figures.

node.py is the job's program (job_files.py): it prints one line of readings (preflight/gpu_health.py). judge.py
compares them on the head node.
"""
