#!/bin/bash
# Prepare a measurement, once on each of its nodes: run the preflight, collect facts, and build nccl-tests.
#
# Argument: preflight or gpu-check, a command of tailrack.pyz that checks a node; empty for no check.
#
# tailrack.pyz  the program for jobs (components/validation/job_files.py)
# about.json    facts of the nodes for the check
# build.env     variables of program.sh, if it has to build the program
#SBATCH --ntasks-per-node=1
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"
export PATH=$PATH:/usr/local/bin:/usr/local/nvidia/bin
on_each_node=(srun --mpi=none --ntasks-per-node=1 --kill-on-bad-exit=0)
# A failure of these programs must not prevent the measurement.
if [ -n "$1" ]; then "${on_each_node[@]}" /usr/bin/python3 tailrack.pyz "$1" "$(cat about.json)" || :; fi
"${on_each_node[@]}" /usr/bin/python3 tailrack.pyz fabric-facts || :
if [ -f build.env ]; then
    set -a
    # shellcheck disable=SC1091  # made for this job
    . ./build.env
    "${on_each_node[@]}" bash program.sh build
fi
