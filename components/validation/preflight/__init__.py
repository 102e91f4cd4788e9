"""Preflight: check the nodes before they are measured, as a plain user in one job over all of them.

main.py is the job's program (job_files.py); `gpus.read_preflight` parses its output. collect.py, a unit of role gpu,
collects data for root only.
"""
