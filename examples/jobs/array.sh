#!/bin/bash
# The same work for each of four inputs, two at a time; the output of task 3 is in array-NUMBER_3.out.
#SBATCH --job-name=array --array=0-3%2 --ntasks=1 --time=5 --output=%x-%A_%a.out
inputs=(north east south west)
echo "task $SLURM_ARRAY_TASK_ID works on ${inputs[$SLURM_ARRAY_TASK_ID]} on $SLURMD_NODENAME"
