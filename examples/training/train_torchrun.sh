#!/bin/bash
# Training by torchrun: a task a node, and torchrun starts the ranks on it.
# sbatch train_torchrun.sh DATA FOLDER [option of train.py...]
#SBATCH --job-name=train --nodes=2 --ntasks-per-node=1 --time=1:00:00 --requeue --open-mode=append
# Debian's PyTorch has none, and says so with an error.
export USE_LIBUV=0
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
srun --kill-on-bad-exit=1 "${PYTHON:-python3}" -m torch.distributed.run --nnodes="$SLURM_NNODES" \
    --nproc-per-node="${SLURM_GPUS_ON_NODE:-1}" --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" \
    --rdzv-endpoint="$first:$((20000 + SLURM_JOB_ID % 20000))" train.py "$@"
