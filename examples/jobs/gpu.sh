#!/bin/bash
# A task a GPU, on one node. What a job does not ask for it does not see.
#SBATCH --job-name=gpu --nodes=1 --gpus-per-node=2 --ntasks-per-node=2 --time=5
# shellcheck disable=SC2016  # for the shell of the task
srun --gpus-per-task=1 bash -c 'echo "task $SLURM_PROCID on $SLURMD_NODENAME: $(nvidia-smi --query-gpu=name,uuid --format=csv,noheader)"'
