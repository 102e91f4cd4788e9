#!/bin/bash
# A container that keeps what a step writes into it for the steps after. It stays on its node when the job has ended, for the
# jobs of yours that come after, until you remove it: here at the end.
#SBATCH --job-name=container-named --ntasks=1 --time=30
name=work-$SLURM_JOB_ID
trap 'srun enroot remove --force "pyxis_$name"' EXIT
srun --container-image="${IMAGE:-debian:13}" --container-name="$name" --container-writable bash -c 'echo prepared >/usr/kept'
srun --container-name="$name" cat /usr/kept
