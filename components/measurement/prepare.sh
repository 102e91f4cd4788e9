#!/bin/bash
# Before a measurement, once on each of its nodes: the preflight, what the node has, and the program of nccl-tests.
#
# about.json    what the preflight is told of the nodes
# build.env     what program.sh reads, where the program is to be built
#SBATCH --ntasks-per-node=1
#SBATCH --no-requeue
#SBATCH --exclusive
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"
export PATH=$PATH:/usr/local/bin:/usr/local/nvidia/bin
each=(srun --mpi=none --ntasks-per-node=1 --kill-on-bad-exit=0)
# What they find may be lost; what they lack must not keep the cluster from being measured.
if [ -f preflight.py ]; then "${each[@]}" /usr/bin/python3 preflight.py "$(cat about.json)" || :; fi
"${each[@]}" /usr/bin/python3 collect_fabric_facts.py || :
if [ -f build.env ]; then
    set -a
    # shellcheck disable=SC1091  # made for this job
    . ./build.env
    "${each[@]}" bash program.sh build
fi
