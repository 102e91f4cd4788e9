#!/bin/bash
# One job over the nodes of two sites. Between them is only the tailnet: for what computes much and says little.
#SBATCH --job-name=sites --nodes=3 --ntasks-per-node=1 --switches=2 --time=5
# shellcheck disable=SC2016  # for the shell of the task
srun bash -c 'echo "$SLURMD_NODENAME speaks over $TAILRACK_INTERFACE"'
