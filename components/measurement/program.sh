#!/bin/bash
# The program of nccl-tests that the share has, one for each kind of node: built once, as the user, on a GPU node, with
# the node's CUDA toolkit or, where there is none, with the toolkit's wheels. It is kept with its checksums.
# Arguments: where (print its folder), or build.
# Behind the functions of components/steps/fetch.sh.
#
# TAILRACK_SOURCE       archive of the source: a URL or a path
# TAILRACK_SHA256       its sha256; or `content:` and that of its files' names and digests (no archive of GitHub's is
#                       promised to have the same bytes again)
# TAILRACK_COLLECTIVE   the collective
set -euo pipefail
# The releases of NVIDIA's that belong together (driver 580 and newer); NCCL is the one the node has, where it has one.
CUDA_WHEELS=(nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85)
NCCL_WHEEL=nvidia-nccl-cu13==

# The same of what is fetched: what, what curl or pip has printed, what to do.
stop_fetching() {
    local reason
    printf '%s\n' "$2" >&2
    reason=$(fetch_reason <<<"$2")
    stop "$1${reason:+ ($reason)}" "$(HOST_NAME=${SLURMD_NODENAME:-this node} fetch_remedy "$reason" "$3")"
}

stop() {
    echo "tailrack: nccl-tests cannot be built on ${SLURMD_NODENAME:-this node}: $1; $2" >&2
    exit 1
}

# The first of some paths that is there.
first_of() {
    local path
    for path; do
        [ ! -e "$path" ] || { echo "$path" && return; }
    done
}

where() {
    local caps
    caps=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sort -un | paste -sd -) ||
        stop "nvidia-smi does not say what its GPUs are" "see that the driver is loaded"
    # shellcheck disable=SC1091
    printf '%s/.tailrack/nccl-tests/%s-%s-%s-sm%s-%.12s\n' "$HOME" "$(. /etc/os-release && echo "$ID")" \
        "$(. /etc/os-release && echo "${VERSION_ID:-0}")" "$(uname -m)" "$caps" "${TAILRACK_SHA256#content:}"
}

whole() { [ -x "$1/${TAILRACK_COLLECTIVE}_perf" ] && (cd "$1" && sha256sum --quiet -c "$TAILRACK_COLLECTIVE.sha256") >&2; }

content_of() { (cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -d ' ' -f 1); }

# Fetch and unpack the source into ./source, and see that it is what was asked for.
fetch() {
    local found said
    case $TAILRACK_SOURCE in
    https://*) said=$(curl -fsSL --retry 3 --max-time 300 -o source.tar "$TAILRACK_SOURCE" 2>&1) ||
        stop_fetching "$TAILRACK_SOURCE cannot be fetched" "$said" "set validation.nccl.source to an archive that the nodes can reach, or validation.nccl.program" ;;
    *) cp "$TAILRACK_SOURCE" source.tar || stop "$TAILRACK_SOURCE cannot be read" "see validation.nccl.source" ;;
    esac
    mkdir source
    case $TAILRACK_SHA256 in
    content:*)
        tar -xf source.tar -C source --strip-components=1
        found=content:$(content_of source) ;;
    *) found=$(sha256sum <source.tar | cut -d ' ' -f 1) ;;
    esac
    [ "$found" = "$TAILRACK_SHA256" ] ||
        stop "$TAILRACK_SOURCE is $found where $TAILRACK_SHA256 was expected" "see validation.nccl.source_sha256"
    [ -f source/Makefile ] || tar -xf source.tar -C source --strip-components=1
}

# The CUDA toolkit, as CUDA_HOME: the node's own, or one of wheels, whose libraries lack the names a linker asks for.
toolkit() {
    local nvcc library
    nvcc=$(command -v nvcc || first_of /usr/local/cuda/bin/nvcc /usr/local/cuda-*/bin/nvcc)
    if [ -n "$nvcc" ]; then
        CUDA_HOME=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
        return
    fi
    wheels "${CUDA_WHEELS[@]}"
    CUDA_HOME=$(dirname "$(dirname "$(find "$PWD/wheels" -path '*/bin/nvcc' -type f | sed -n 1p)")")
    [ -x "$CUDA_HOME/bin/nvcc" ] || stop "there is no nvcc in NVIDIA's wheels" "install the CUDA toolkit on the node"
    ln -sfn lib "$CUDA_HOME/lib64"
    for library in "$CUDA_HOME"/lib/*.so.*; do ln -sf "$(basename "$library")" "${library%%.so.*}.so"; done
}

wheels() {
    local said
    said=$(/usr/bin/python3 -m pip download --quiet --no-deps --only-binary=:all: -d downloads "$@" 2>&1) ||
        stop_fetching "NVIDIA's wheels cannot be fetched with pip" "$said" "install the CUDA toolkit on the node, or set validation.nccl.program"
    local wheel
    for wheel in downloads/*.whl; do /usr/bin/python3 -m zipfile -e "$wheel" wheels; done
    chmod -R u+rwx wheels
}

# NCCL's header and library, as NCCL_HOME: the node's own, or a wheel.
nccl() {
    local header library version
    header=$(first_of /usr/include/nccl.h /usr/local/cuda*/include/nccl.h /usr/local/nccl*/include/nccl.h)
    if [ -n "$header" ]; then
        NCCL_HOME=$(dirname "$(dirname "$header")")
        return
    fi
    library=$(ldconfig -p | awk '/libnccl\.so\.2/ && !found++ { print $NF }')
    version=$([ -z "$library" ] || readlink -f "$library" | sed -n 's/.*\.so\.\([0-9.]*\)$/\1/p')
    wheels "$NCCL_WHEEL${version:-2.28.9}"
    NCCL_HOME=$(dirname "$(dirname "$(find "$PWD/wheels" -path '*/include/nccl.h' | sed -n 1p)")")
    ln -sf libnccl.so.2 "$NCCL_HOME/lib/libnccl.so"
}

# Open MPI's header and library, as MPI_HOME: the package's, unpacked here where it is not installed.
mpi() {
    local library
    MPI_HOME=$(dirname "$(dirname "$(first_of /usr/lib/*/openmpi/include/mpi.h)")")
    [ ! -f "$MPI_HOME/include/mpi.h" ] || return 0
    (apt-get download libopenmpi-dev && dpkg -x libopenmpi-dev_*.deb mpi) >&2 ||
        stop "there is no mpi.h" "install libopenmpi-dev on the node"
    MPI_HOME=$(dirname "$(dirname "$(find "$PWD/mpi" -path '*/openmpi/include/mpi.h' | sed -n 1p)")")
    library=$(ldconfig -p | awk '/libmpi\.so\./ && !found++ { print $NF }')
    [ -n "$library" ] || stop "there is no libmpi.so" "install openmpi-bin on the node"
    mkdir -p "$MPI_HOME/lib"
    ln -sf "$library" "$MPI_HOME/lib/libmpi.so"
}

build() {
    local kept wait=900 codes cap
    kept=$(where)
    if whole "$kept"; then return 0; fi
    mkdir -p "$(dirname "$kept")"
    # Of the nodes of one kind in this job one builds, and the others wait for it.
    if ! mkdir "$kept.job-$SLURM_JOB_ID" 2>/dev/null; then
        until whole "$kept" 2>/dev/null; do
            [ ! -e "$kept.job-$SLURM_JOB_ID/failed" ] && [ "$SECONDS" -lt "$wait" ] ||
                stop "another node of this kind did not build it" "see what it said"
            sleep 1
        done
        return 0
    fi
    MARK=$kept.job-$SLURM_JOB_ID WORK=$(mktemp -d "${TMPDIR:-/tmp}/tailrack-build.XXXXXX")
    trap 'status=$?; if [ "$status" -eq 0 ]; then rmdir "$MARK"; else : >"$MARK/failed"; fi; rm -rf "$WORK"; exit "$status"' EXIT
    cd "$WORK"
    command -v make g++ >/dev/null || stop "there is no make or no g++" "install both on the node"
    fetch
    toolkit
    nccl
    mpi
    codes=$(for cap in $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sort -un); do
        printf -- '-gencode=arch=compute_%s,code=sm_%s ' "$cap" "$cap"
    done)
    mkdir built
    make -j "$(nproc)" -C source/src MPI=1 MPI_HOME="$MPI_HOME" CUDA_HOME="$CUDA_HOME" NCCL_HOME="$NCCL_HOME" \
        NVCC_GENCODE="$codes" CUDARTLIB=cudart_static BUILDDIR="$WORK/built" os.build \
        "$WORK/built/${TAILRACK_COLLECTIVE}_perf" >make.log 2>&1 ||
        { tail -n 20 make.log >&2; stop "make failed" "see its last lines above"; }
    mkdir -p kept/lib
    cp "built/${TAILRACK_COLLECTIVE}_perf" kept/
    # The node's own NCCL is found by itself; a wheel's must lie beside the program.
    case $NCCL_HOME in "$WORK"/*) cp "$NCCL_HOME/lib/libnccl.so.2" kept/lib/ ;; esac
    (cd kept && find . -type f ! -name '*.sha256' -print0 | xargs -0 sha256sum) >sums
    cp sums "kept/$TAILRACK_COLLECTIVE.sha256"
    # Whole or not there at all; another collective's program may lie there already.
    mkdir -p "$kept"
    cp -r kept "$kept.new-$SLURM_JOB_ID"
    cp -rT "$kept.new-$SLURM_JOB_ID/lib" "$kept/lib"
    mv -f "$kept.new-$SLURM_JOB_ID/${TAILRACK_COLLECTIVE}_perf" "$kept/"
    mv -f "$kept.new-$SLURM_JOB_ID/$TAILRACK_COLLECTIVE.sha256" "$kept/"
    rm -rf "$kept.new-$SLURM_JOB_ID"
    echo "tailrack: built nccl-tests in $kept with $("$CUDA_HOME/bin/nvcc" --version | tail -n 2 | sed -n 1p)"
}

"$1"
