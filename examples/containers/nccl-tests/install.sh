#!/bin/bash
# Install nccl-tests, perftest and Open MPI in an image with CUDA and NCCL (Ubuntu or Debian), as root in the image.
set -euo pipefail
# As components/measurement_jobs/plan.py has it for builds on nodes.
commit=a0b82b2260cf5152b9f8c061bbf7eaf0ba096432
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends ca-certificates g++ git ibverbs-providers libopenmpi-dev make openmpi-bin perftest python3
git init -q /build/source
cd /build/source
# git compares what it fetches with the commit's number.
git fetch -q --depth 1 https://github.com/NVIDIA/nccl-tests "$commit"
git checkout -q FETCH_HEAD
make -j "$(nproc)" MPI=1 MPI_HOME="/usr/lib/$(gcc -print-multiarch)/openmpi"
install build/*_perf /usr/local/bin
rm -rf /build/source /var/lib/apt/lists/*
