#!/bin/bash
# Training by torchrun: a task a node, and torchrun starts the ranks on it.
# sbatch train_torchrun.sh DATA FOLDER [option of train.py...]
#SBATCH --job-name=train --nodes=2 --ntasks-per-node=1 --time=1:00:00 --requeue --open-mode=append
python=${PYTHON:-python3}
if ! "$python" -c 'from torch.distributed import TCPStore; TCPStore("127.0.0.1", 0, is_master=True)' 2>/dev/null; then
    echo "train: torchrun wants a PyTorch with libuv, which Debian's has not: take one from PyPI (PYTHON=VENV/bin/python), or train_srun.sh" >&2
    exit 1
fi
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
srun --kill-on-bad-exit=1 "$python" -m torch.distributed.run --nnodes="$SLURM_NNODES" \
    --nproc-per-node="${SLURM_GPUS_ON_NODE:-1}" --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" \
    --rdzv-endpoint="$first:$((61000 + SLURM_JOB_ID % 4500))" train.py "$@"
