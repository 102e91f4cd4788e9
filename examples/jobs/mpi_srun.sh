#!/bin/bash
# MPI started by Slurm itself: no mpirun, no list of hosts. Without --mpi=pmix each task would be rank 0 of 1.
#SBATCH --job-name=mpi-srun --nodes=2 --ntasks-per-node=1 --time=5
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp
srun --mpi=pmix python3 mpi_sum.py
