#!/bin/bash
# A task on each of two nodes of one site.
#SBATCH --job-name=cpu --nodes=2 --ntasks-per-node=1 --time=5
# shellcheck disable=SC2016  # for the shell of the task
srun bash -c 'echo "task $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME, $(nproc) CPUs"'
