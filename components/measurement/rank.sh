#!/bin/bash
# One rank of a measurement between GPUs, on its node or in a container there: the program, and what NCCL says of it.
# Arguments: the number of the run, and those of the program.
#
# TAILRACK_PROGRAM      the program, or the folder of nccl-tests; empty for the one that the share has
# TAILRACK_COLLECTIVE   the collective
# TAILRACK_IMAGE_SETS   names of NCCL's variables that only the image sets, where it runs in one
set -uo pipefail
run=$1
shift
here=$(dirname "$0")
if [ -z "$TAILRACK_PROGRAM" ]; then
    TAILRACK_PROGRAM=$(bash "$here/program.sh" where) || exit 1
    export LD_LIBRARY_PATH=$TAILRACK_PROGRAM/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
if [ -d "$TAILRACK_PROGRAM" ]; then TAILRACK_PROGRAM=$TAILRACK_PROGRAM/${TAILRACK_COLLECTIVE}_perf; fi
if ! command -v "$TAILRACK_PROGRAM" >/dev/null; then
    echo "tailrack: there is no program $TAILRACK_PROGRAM on ${SLURMD_NODENAME:-this node}" >&2
    exit 1
fi
# NCCL's plugin for EFA where AWS' installer puts it, behind what an image says itself.
for plugin in /opt/amazon/ofi-nccl/lib/{,*-linux-gnu/}libnccl-net*.so; do
    [ ! -e "$plugin" ] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${plugin%/*}
done
# On a local disk, and nobody else's: it is written while the data moves.
own=$(mktemp -d "${TMPDIR:-/tmp}/tailrack-nccl.XXXXXX") || exit 1
trap 'rm -rf "$own"' EXIT
log=$own/log
: >"$log"
export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH NCCL_DEBUG_FILE=$log
# The figures with all their digits, where the program can tell them (-J, since 2.17.3). Beside them it writes its whole
# environment, so the file stays here.
if [ "${SLURM_PROCID:-0}" -eq 0 ] && command -v python3 >/dev/null &&
    grep -qae --output_file "$(command -v "$TAILRACK_PROGRAM")"; then
    set -- "$@" -J "$own/figures.json"
fi
"$TAILRACK_PROGRAM" "$@"
status=$?
if [ -e "$own/figures.json" ]; then python3 "$here/nccl_json.py" "$own/figures.json" >"$here/figures.$run"; fi
# Settings of NCCL that only the image makes (role fabric's hook of Enroot names them).
if [ -n "${TAILRACK_IMAGE_SETS:-}" ] && [ "${SLURM_PROCID:-0}" -eq 0 ]; then
    for name in $TAILRACK_IMAGE_SETS; do echo "# tailrack image sets $name=${!name-}"; done >>"$here/log.$run.0"
fi
# Its start, its end, and each thing once that says which way the data went.
awk '
    { line[NR] = $0; said = $0; sub(/.* NCCL [A-Z]+ /, "", said); sub(/^.* via /, "via ", said) }
    said ~ /^via |^NET\/|^Using network|^NCCL version|^Pattern 4|^Connected all|NVLS|DMA-BUF|MNNVL|set by environment/ ||
        / NCCL WARN / { if (!(said in seen)) take[NR] = 1; seen[said] = 1 }
    END { for (at = 1; at <= NR; at++) if (at <= 20 || at > NR - 20 || at in take) print line[at] }
' "$log" >>"$here/log.$run.${SLURM_PROCID:-0}"
exit "$status"
