#!/bin/bash
# MPI in a container by srun alone: IMAGE has python3, mpi4py and an Open MPI that speaks PMIx with the cluster's Slurm.
#SBATCH --job-name=container-mpi --nodes=2 --ntasks-per-node=1 --time=30
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp
srun --mpi=pmix --container-image="${IMAGE:?an image with mpi4py}" --container-mounts="$PWD:$PWD" --container-workdir="$PWD" \
    python3 mpi_sum.py
