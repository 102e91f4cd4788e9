#!/bin/bash
# NCCL's all_reduce over all GPUs of two nodes, from a PyTorch of your own (VENV; the default is the python3 of the machine).
# The network is chosen for it: see docs/using.md, MPI and NCCL.
#SBATCH --job-name=nccl --nodes=2 --gpus-per-node=8 --ntasks-per-node=8 --time=10
# Below 61000 are ports of the cluster, which no job can open.
export MASTER_PORT=$((61000 + SLURM_JOB_ID % 4500))
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
export MASTER_ADDR
srun "${VENV:+$VENV/bin/}python3" all_reduce.py
