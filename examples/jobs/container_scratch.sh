#!/bin/bash
# Data on each node's own disk, in a container: TMPDIR is the job's folder there, and inside it is in its own place.
#SBATCH --job-name=container-scratch --nodes=2 --ntasks-per-node=1 --time=30
[ "${TMPDIR:-/tmp}" != /tmp ] || { echo "jobs have no folder of their own on this cluster's disks" >&2; exit 1; }
# Where jobs are not confined by cgroups, the folders are made with the first step.
srun true
sbcast "${DATA:?a file}" "$TMPDIR/data"
# shellcheck disable=SC2016  # for the shell of the task
srun --container-image="${IMAGE:-debian:13}" bash -c '
    cp "$TMPDIR/data" "$TMPDIR/own" && echo "$SLURMD_NODENAME reads $(stat -c %s "$TMPDIR/data") bytes in $TMPDIR, and writes there"'
