#!/bin/bash
# A folder of the share inside a container, to be read alone, and none of your home.
#SBATCH --job-name=container-mounts --ntasks=1 --time=30
data=${DATA:-$PWD}
# shellcheck disable=SC2016  # for the shell of the task
srun --container-image="${IMAGE:-debian:13}" --no-container-mount-home --container-mounts="$data:/data:ro" \
    bash -c 'ls /data; touch /data/x 2>/dev/null || echo "/data is read-only"; ls -d "$HOME"/.ssh 2>/dev/null || echo "no home"'
