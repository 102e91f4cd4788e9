#!/bin/bash
# Training by srun alone: a task a rank, and Slurm says who is who. On GPUs: --gpus-per-node=8 --ntasks-per-node=8.
# sbatch train_srun.sh DATA FOLDER [option of train.py...]
#SBATCH --job-name=train --nodes=2 --ntasks-per-node=1 --time=1:00:00 --requeue --open-mode=append
# One rank that ends with an error ends the others, which would wait for it.
srun --kill-on-bad-exit=1 "${PYTHON:-python3}" train.py "$@"
