#!/bin/bash
# Two tasks in a container. IMAGE: an image that is staged on the nodes, or one of a registry.
#SBATCH --job-name=container-cpu --nodes=2 --ntasks-per-node=1 --time=30
# shellcheck disable=SC2016  # for the shell of the task
srun --container-image="${IMAGE:-debian:13}" bash -c 'echo "task $SLURM_PROCID in $(. /etc/os-release && echo "$PRETTY_NAME")"'
