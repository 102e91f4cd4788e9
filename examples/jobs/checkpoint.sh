#!/bin/bash
# Work that goes on where it was, whatever ends it: a node that is lost, scontrol requeue, a time limit.
# Its step is in a file on the share, which is there as a whole or not at all (rename).
#SBATCH --job-name=checkpoint --ntasks=1 --time=10 --requeue --open-mode=append --output=%x-%j.out
set -euo pipefail
steps=${STEPS:-20} state=checkpoint-$SLURM_JOB_ID
step=$(cat "$state" 2>/dev/null || echo 0)
echo "start ${SLURM_RESTART_COUNT:-0} begins at step $step"
while [ "$step" -lt "$steps" ]; do
    sleep 1 # the work
    step=$((step + 1))
    echo "$step" >"$state.new"
    mv "$state.new" "$state"
done
echo "done after $step steps"
