#!/bin/bash
# Training by srun with checkpoints on the node's own disk: writing them does not wait for the share. The
# script copies them to the share every five minutes, and at the end, also before the time limit. The cluster needs
# tailrack:scratch.
# sbatch train_scratch.sh DATA FOLDER [option of train.py...]
#SBATCH --job-name=train --nodes=2 --ntasks-per-node=1 --time=1:00:00 --requeue --open-mode=append
#SBATCH --signal=B:TERM@120
data=$1 target=$(realpath -m "$2")
shift 2
mkdir -p "$target" || exit 1
# train.py keeps two checkpoints, and a copy removes none.
find "$target" -name 'step-*.pt' | sort | head -n -2 | xargs -r rm
# All ranks continue from the last checkpoint, so each node gets those of an earlier run. A first run has none to copy.
# shellcheck disable=SC2016  # of the task
srun --ntasks="$SLURM_NNODES" --ntasks-per-node=1 bash -ec 'mkdir -p "$TMPDIR/checkpoints"
    for file in "$1"/step-*.pt; do [ ! -e "$file" ] || cp -u "$file" "$TMPDIR/checkpoints"; done' - "$target" || exit 1
# Rank 0 writes the checkpoints and is on the node of this script.
while sleep 300; do rsync -a "$TMPDIR/checkpoints/" "$target/"; done &
copies=$!
# shellcheck disable=SC2016  # of the task
srun --kill-on-bad-exit=1 \
    bash -c 'exec "${PYTHON:-python3}" train.py "$1" "$TMPDIR/checkpoints" "${@:2}"' - "$data" "$@" &
training=$!
# At SIGTERM train.py saves and ends.
trap 'kill "$training"' TERM
# The signal ends the first wait.
wait "$training" || wait "$training"
status=$?
kill "$copies"
rsync -a "$TMPDIR/checkpoints/" "$target/" || exit 1
exit "$status"
