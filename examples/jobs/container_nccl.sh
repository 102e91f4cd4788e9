#!/bin/bash
# NCCL in a container, over all GPUs of two nodes. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set for it.
#SBATCH --job-name=container-nccl --nodes=2 --gpus-per-node=8 --ntasks-per-node=8 --time=30
srun --container-image="${IMAGE:-nvcr.io#nvidia/pytorch:25.08-py3}" --container-mounts="$PWD:$PWD" --container-workdir="$PWD" \
    python3 all_reduce.py
