#!/bin/bash
#SBATCH --job-name=build-image
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --time=1:00:00
# Build the image on a node with Enroot alone: a base image in, nccl-tests.sqsh in this folder out.
#   sbatch build.sh [BASE]     BASE: an image of a registry, as for --container-image, or the path of a .sqsh file
set -euo pipefail
base=${1:-nvcr.io#nvidia/cuda:13.0.1-devel-ubuntu24.04}
work=$(mktemp -d "${TMPDIR:-/tmp}/build.XXXXXX")
export ENROOT_DATA_PATH=$work/containers
# The container may not exist yet.
trap 'enroot remove -f image || true; rm -rf "$work"' EXIT
if [[ $base != *.sqsh ]]; then
    enroot import --output "$work/base.sqsh" "docker://$base"
    base=$work/base.sqsh
fi
enroot create --name image "$base"
# root in the container is this user outside.
enroot start --root --rw image bash -c "$(cat install.sh)"
# Folders that Enroot has made for mounts have mode 0, which its export cannot read.
find "$ENROOT_DATA_PATH/image" -type d -perm 0000 -exec chmod 755 {} \;
enroot export --force --output "$PWD/nccl-tests.sqsh" image
