#!/bin/bash
# Training by torchrun: a task a node, and torchrun starts the ranks on it.
# sbatch train_torchrun.sh DATA FOLDER [option of train.py...]
#SBATCH --job-name=train --nodes=2 --ntasks-per-node=1 --time=1:00:00 --requeue --open-mode=append
# Debian's PyTorch is without libuv, and says so with an error; --rdzv-backend=c10d wants it whatever is said here.
export USE_LIBUV=0
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
export MASTER_ADDR MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
# shellcheck disable=SC2016  # for the shell of the task, which has its own SLURM_NODEID
srun --kill-on-bad-exit=1 bash -c 'exec "${PYTHON:-python3}" -m torch.distributed.run --nnodes="$SLURM_NNODES" \
    --node-rank="$SLURM_NODEID" --nproc-per-node="${SLURM_GPUS_ON_NODE:-1}" --master-addr="$MASTER_ADDR" \
    --master-port="$MASTER_PORT" train.py "$@"' torchrun "$@"
