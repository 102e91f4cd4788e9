#!/bin/bash
# Build nccl-tests on the share, once for each kind of node. A GPU node builds it as the user, with the node's CUDA
# toolkit or, without one, with the toolkit's wheels. Its checksums are stored with it.
# Arguments: where (print the folder), or build.
#
# TAILRACK_SOURCE       archive of the source: a URL or a path
# TAILRACK_SHA256       its sha256; or `content:` and the sha256 of its files' names and digests, because GitHub does
#                       not promise identical archives
# TAILRACK_COLLECTIVES  the collectives
set -euo pipefail
# Releases of NVIDIA that match (driver 580 and newer). NCCL is the node's own, if it has one.
CUDA_WHEELS=(nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85)
NCCL_WHEEL=nvidia-nccl-cu13==

NODE=${SLURMD_NODENAME:-this node} PROGRAM=$(realpath "$(dirname "$0")")/tailrack.pyz

# Stop after a failed download: problem, output of curl or pip, remedy.
stop_fetching() {
    printf '%s\n' "$2" >&2
    stop "$(/usr/bin/python3 "$PROGRAM" fetch-problem "$1" "$3" "$NODE" <<<"$2")"
}

stop() {
    echo "tailrack: nccl-tests cannot be built on $NODE: $1${2:+; $2}" >&2
    exit 1
}

# Print the first path that exists.
first_of() { find -L "$@" -maxdepth 0 2>/dev/null | sed -n 1p || :; }

# Print the compute capabilities of this node's GPUs, without the dot.
capabilities() { nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sort -un; }

where() {
    local caps
    caps=$(capabilities | paste -sd -) || stop "nvidia-smi does not list the GPUs" "check that the driver is loaded"
    # shellcheck disable=SC1091
    printf '%s/.tailrack/nccl-tests/%s-%s-%s-sm%s-%.12s\n' "$HOME" "$(. /etc/os-release && echo "$ID")" \
        "$(. /etc/os-release && echo "${VERSION_ID:-0}")" "$(uname -m)" "$caps" "${TAILRACK_SHA256#content:}"
}

whole() { for name in $TAILRACK_COLLECTIVES; do { [ -x "$1/${name}_perf" ] && (cd "$1" && sha256sum --quiet -c "$name.sha256") >&2; } || return 1; done; }

content_of() { (cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -d ' ' -f 1); }

# Fetch the source, unpack it into ./source, and check its checksum.
fetch() {
    local checksum output
    case $TAILRACK_SOURCE in
    https://*) output=$(curl -fsSL --retry 3 --max-time 300 -o source.tar "$TAILRACK_SOURCE" 2>&1) ||
        stop_fetching "$TAILRACK_SOURCE cannot be fetched" "$output" "set validation.nccl.source to an archive that the nodes can reach, or validation.nccl.program" ;;
    *) cp "$TAILRACK_SOURCE" source.tar || stop "$TAILRACK_SOURCE cannot be read" "check validation.nccl.source" ;;
    esac
    mkdir source
    case $TAILRACK_SHA256 in
    content:*)
        tar -xf source.tar -C source --strip-components=1
        checksum=content:$(content_of source) ;;
    *) checksum=$(sha256sum <source.tar | cut -d ' ' -f 1) ;;
    esac
    [ "$checksum" = "$TAILRACK_SHA256" ] ||
        stop "$TAILRACK_SOURCE has the checksum $checksum instead of $TAILRACK_SHA256" "check validation.nccl.source_sha256"
    [ -f source/Makefile ] || tar -xf source.tar -C source --strip-components=1
}

# Set CUDA_HOME: the node's toolkit, or one from wheels, with the library names that a linker needs.
toolkit() {
    local nvcc library
    nvcc=$(command -v nvcc || first_of /usr/local/cuda/bin/nvcc /usr/local/cuda-*/bin/nvcc)
    [ -z "$nvcc" ] || { CUDA_HOME=$(dirname "$(dirname "$(readlink -f "$nvcc")")"); return 0; }
    wheels "${CUDA_WHEELS[@]}"
    CUDA_HOME=$(dirname "$(dirname "$(find "$PWD/wheels" -path '*/bin/nvcc' -type f | sed -n 1p)")")
    [ -x "$CUDA_HOME/bin/nvcc" ] || stop "NVIDIA's wheels contain no nvcc" "install the CUDA toolkit on the node"
    ln -sfn lib "$CUDA_HOME/lib64"
    for library in "$CUDA_HOME"/lib/*.so.*; do ln -sf "$(basename "$library")" "${library%%.so.*}.so"; done
}

wheels() {
    local output wheel
    output=$(/usr/bin/python3 -m pip download --quiet --no-deps --only-binary=:all: -d downloads "$@" 2>&1) ||
        stop_fetching "NVIDIA's wheels cannot be fetched with pip" "$output" "install the CUDA toolkit on the node, or set validation.nccl.program"
    for wheel in downloads/*.whl; do /usr/bin/python3 -m zipfile -e "$wheel" wheels; done
    chmod -R u+rwx wheels
}

# Set NCCL_HOME, the folder with NCCL's header and library: the node's own, or a wheel.
nccl() {
    local header library version
    header=$(first_of /usr/include/nccl.h /usr/local/cuda*/include/nccl.h /usr/local/nccl*/include/nccl.h)
    [ -z "$header" ] || { NCCL_HOME=$(dirname "$(dirname "$header")"); return 0; }
    library=$(ldconfig -p | awk '/libnccl\.so\.2/ && !found++ { print $NF }')
    version=$([ -z "$library" ] || readlink -f "$library" | sed -n 's/.*\.so\.\([0-9.]*\)$/\1/p')
    wheels "$NCCL_WHEEL${version:-2.28.9}"
    NCCL_HOME=$(dirname "$(dirname "$(find "$PWD/wheels" -path '*/include/nccl.h' | sed -n 1p)")")
    ln -sf libnccl.so.2 "$NCCL_HOME/lib/libnccl.so"
}

# Set MPI_HOME, the folder with Open MPI's header and library: from the package, unpacked here if it is not installed.
mpi() {
    local library
    MPI_HOME=$(dirname "$(dirname "$(first_of /usr/lib/*/openmpi/include/mpi.h)")")
    [ ! -f "$MPI_HOME/include/mpi.h" ] || return 0
    (apt-get download libopenmpi-dev && dpkg -x libopenmpi-dev_*.deb mpi) >&2 ||
        stop "mpi.h is missing" "install libopenmpi-dev on the node"
    MPI_HOME=$(dirname "$(dirname "$(find "$PWD/mpi" -path '*/openmpi/include/mpi.h' | sed -n 1p)")")
    library=$(ldconfig -p | awk '/libmpi\.so\./ && !found++ { print $NF }')
    [ -n "$library" ] || stop "libmpi.so is missing" "install openmpi-bin on the node"
    mkdir -p "$MPI_HOME/lib"
    ln -sf "$library" "$MPI_HOME/lib/libmpi.so"
}

build() {
    local kept wait=900 codes name
    read -ra names <<<"$TAILRACK_COLLECTIVES" && local programs=("${names[@]/%/_perf}")
    kept=$(where)
    if whole "$kept"; then return 0; fi
    mkdir -p "$(dirname "$kept")"
    # One node of each kind in this job builds, and the others wait.
    if ! mkdir "$kept.job-$SLURM_JOB_ID" 2>/dev/null; then
        until whole "$kept" 2>/dev/null; do
            [ ! -e "$kept.job-$SLURM_JOB_ID/failed" ] && [ "$SECONDS" -lt "$wait" ] ||
                stop "another node of this kind did not build it" "read its error"
            sleep 1
        done
        return 0
    fi
    MARK=$kept.job-$SLURM_JOB_ID WORK=$(mktemp -d "${TMPDIR:-/tmp}/tailrack-build.XXXXXX")
    trap 'status=$?; if [ "$status" -eq 0 ]; then rmdir "$MARK"; else : >"$MARK/failed"; fi; rm -rf "$WORK"; exit "$status"' EXIT
    cd "$WORK"
    command -v make g++ >/dev/null || stop "make or g++ is missing" "install both on the node"
    fetch
    toolkit
    nccl
    mpi
    codes=$(capabilities | sed 's/.*/-gencode=arch=compute_&,code=sm_&/' | paste -sd ' ')
    mkdir built
    make -j "$(nproc)" -C source/src MPI=1 MPI_HOME="$MPI_HOME" CUDA_HOME="$CUDA_HOME" NCCL_HOME="$NCCL_HOME" \
        NVCC_GENCODE="$codes" CUDARTLIB=cudart_static BUILDDIR="$WORK/built" os.build \
        "${programs[@]/#/$WORK/built/}" >make.log 2>&1 ||
        { tail -n 20 make.log >&2; stop "make failed" "read its last lines above"; }
    mkdir -p kept/lib
    cp "${programs[@]/#/built/}" kept/
    # The linker finds the node's own NCCL; a wheel's must be beside the program.
    case $NCCL_HOME in "$WORK"/*) cp "$NCCL_HOME/lib/libnccl.so.2" kept/lib/ ;; esac
    (cd kept && find . -type f ! -name '*.sha256' -print0 | xargs -0 sha256sum) >sums
    for name in "${names[@]}"; do cp sums "kept/$name.sha256"; done
    # Move complete files into place. The folder may already have other programs.
    mkdir -p "$kept"
    cp -r kept "$kept.new-$SLURM_JOB_ID"
    cp -rT "$kept.new-$SLURM_JOB_ID/lib" "$kept/lib"
    mv -f "${programs[@]/#/$kept.new-$SLURM_JOB_ID/}" "$kept.new-$SLURM_JOB_ID/"*.sha256 "$kept/"
    rm -rf "$kept.new-$SLURM_JOB_ID"
    echo "tailrack: built nccl-tests in $kept with $("$CUDA_HOME/bin/nvcc" --version | tail -n 2 | sed -n 1p)"
}

"$1"
