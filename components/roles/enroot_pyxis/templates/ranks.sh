#!/bin/bash
# Written by tailrack. The names by which frameworks find one another, in every image: WORLD_SIZE, MASTER_ADDR and
# MASTER_PORT for the step. RANK and LOCAL_RANK differ from task to task and this runs once for all of a node's; Pyxis sets
# them in each task where there is a PYTORCH_VERSION, so an empty one is given to images that have none.
set -eu

[ -n "${SLURM_JOB_ID-}" ] && [ -n "${SLURM_STEP_NODELIST-}" ] || exit 0

has() { grep -q "^$1=" "$ENROOT_ENVIRON"; }
give() { has "$1" || printf '%s=%s\n' "$1" "$2" >>"$ENROOT_ENVIRON"; }

give MASTER_ADDR "$(scontrol show hostnames "$SLURM_STEP_NODELIST" | head -n 1)"
# Above the ports of Slurm's own (60001-60999) and below the end, another one for the next job and step.
give MASTER_PORT "$((61000 + (SLURM_JOB_ID * 7 + ${SLURM_STEP_ID:-0}) % 4500))"
give WORLD_SIZE "${SLURM_STEP_NUM_TASKS:-${SLURM_NTASKS:-1}}"
[ -n "${PYTORCH_VERSION-}" ] || give PYTORCH_VERSION ''
