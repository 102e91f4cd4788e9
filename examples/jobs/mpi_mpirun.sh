#!/bin/bash
# MPI started by mpirun, which asks Slurm for the nodes of the job.
#SBATCH --job-name=mpi-mpirun --nodes=2 --ntasks-per-node=1 --time=5
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp
mpirun python3 mpi_sum.py
