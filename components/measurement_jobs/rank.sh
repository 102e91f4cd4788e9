#!/bin/bash
# Run one rank of a measurement on GPUs, on its node or in a container there, and save its NCCL log.
# Arguments: the number of the run, then the program's own. With `collect` instead, save on each node the logs of ranks
# that were killed before they did.
#
# TAILRACK_PROGRAM      the program, or the folder of nccl-tests; empty for the one on the share
# TAILRACK_COLLECTIVE   the collective
# TAILRACK_SETS         settings of NCCL that the job makes itself, as TAILRACK_DEFAULTS (role fabric) has those of all jobs
# TAILRACK_IMAGE_SETS   names of NCCL's variables that only the image sets, in a container
set -uo pipefail
run=$1
shift
folder=$(dirname "$0")
# Keep the start and the end of a log, and each line about the path of the data once.
save() {
    awk '
        { line[NR] = $0; text = $0; sub(/.* NCCL [A-Z]+ /, "", text); sub(/^.* via /, "via ", text) }
        text ~ /^via |^NET\/|^Using network|^NCCL version|^Pattern 4|^Connected all|NVLS|DMA-BUF|MNNVL|set by environment/ ||
            / NCCL WARN / { if (!(text in seen)) keep[NR] = 1; seen[text] = 1 }
        END { for (i = 1; i <= NR; i++) if (i <= 20 || i > NR - 20 || i in keep) print line[i] }
    ' "$1/log" >>"$folder/log.$(basename "${1%.*}" | sed 's/.*-//')"
    rm -rf "$1"
}
if [ "$run" = collect ]; then
    for left in "${TMPDIR:-/tmp}/tailrack-nccl-$SLURM_JOB_ID-"* "/dev/shm/tailrack-nccl-$SLURM_JOB_ID-"*; do
        if [ -d "$left" ] && [ ! -L "$left" ] && [ -O "$left" ]; then save "$left"; fi
    done
    exit 0
fi
if [ -z "$TAILRACK_PROGRAM" ]; then
    TAILRACK_PROGRAM=$(bash "$folder/program.sh" where) || exit 1
    export LD_LIBRARY_PATH=$TAILRACK_PROGRAM/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
if [ -d "$TAILRACK_PROGRAM" ]; then TAILRACK_PROGRAM=$TAILRACK_PROGRAM/${TAILRACK_COLLECTIVE}_perf; fi
if ! command -v "$TAILRACK_PROGRAM" >/dev/null; then
    echo "tailrack: the program $TAILRACK_PROGRAM is missing on ${SLURMD_NODENAME:-this node}" >&2
    exit 1
fi
# Add NCCL's plugin for EFA in the folder of AWS' installer, after the image's own paths.
for plugin in /opt/amazon/ofi-nccl/lib/{,*-linux-gnu/}libnccl-net*.so; do
    [ ! -e "$plugin" ] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${plugin%/*}
done
# On a local disk, in a private folder: NCCL writes the log during the measurement. A container, which has this variable,
# shares only memory with its machine.
place=${TMPDIR:-/tmp}
if [ -n "${TAILRACK_IMAGE_SETS+set}" ]; then place=/dev/shm; fi
private=$(mktemp -d "$place/tailrack-nccl-$SLURM_JOB_ID-$run.${SLURM_PROCID:-0}.XXXXXX") || exit 1
trap 'rm -rf "$private"' EXIT
log=$private/log
: >"$log"
read -ra settings <<<"${TAILRACK_SETS:-} ${TAILRACK_DEFAULTS:-}"
if [ "${SLURM_LOCALID:-0}" -eq 0 ]; then
    for setting in "${settings[@]}"; do
        case $setting in NCCL_*) echo "# tailrack sets $setting" ;; esac
    done >>"$folder/log.$run.${SLURM_PROCID:-0}"
fi
export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH NCCL_DEBUG_FILE=$log
# Save the results with all digits if the program can (-J, since 2.17.3). The file also has its whole environment, so it
# stays here.
if [ "${SLURM_PROCID:-0}" -eq 0 ] && command -v python3 >/dev/null &&
    grep -qae --output_file "$(command -v "$TAILRACK_PROGRAM")"; then
    set -- "$@" -J "$private/figures.json"
fi
"$TAILRACK_PROGRAM" "$@"
status=$?
if [ -e "$private/figures.json" ]; then python3 "$folder/tailrack.pyz" nccl-table "$private/figures.json" >"$folder/figures.$run"; fi
# Log the settings of NCCL that only the image makes (role fabric's Enroot hook names them).
if [ -n "${TAILRACK_IMAGE_SETS:-}" ] && [ "${SLURM_PROCID:-0}" -eq 0 ]; then
    for name in $TAILRACK_IMAGE_SETS; do echo "# tailrack image sets $name=${!name-}"; done >>"$folder/log.$run.0"
fi
save "$private"
exit "$status"
