#!/bin/bash
# A container that keeps what a step writes into it for the steps after: the name is the job's own.
#SBATCH --job-name=container-named --ntasks=1 --time=30
name=work-$SLURM_JOB_ID
srun --container-image="${IMAGE:-debian:13}" --container-name="$name" --container-writable bash -c 'echo prepared >/usr/kept'
srun --container-name="$name" cat /usr/kept
