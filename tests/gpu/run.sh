#!/bin/bash
# Run the tests on real GPUs on this machine, which needs one of them, better two, root, and nothing from the network:
#   run.sh [PYTEST ARGUMENT...]
#   ARCHIVES   folder that `python -m tests.gpu.pack` filled (default .gpu)
#   MODULE     a Python module to run in the place of pytest, on machines without GPUs: `bench.usable_nodes`
#   REHEARSE   yes: on a machine without GPUs, everything but what a GPU would do
#   OUT        folder for what is kept of the run: logs of every machine and step, and figures (default .tailrack/gpu)
# All that runs here runs in namespaces of its own and ends with them; no file of this machine is changed.
set -euo pipefail
cd "$(dirname "$0")/../.."
archives=$(realpath "${ARCHIVES:-.gpu}") out=${OUT:-.tailrack/gpu}

skip() {
    printf '\ntest-gpu: SKIPPED, NOTHING WAS TESTED: %s\n\n' "$1" >&2
    exit 0
}
command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1 || : # makes missing device files
gpus=$(find /dev -maxdepth 1 -regex '/dev/nvidia[0-9]+' | wc -l)
[ "$gpus" -ge 1 ] || [ "${REHEARSE:-}" = yes ] || [ -n "${MODULE:-}" ] || skip "this machine shows no NVIDIA GPU in /dev"
[ "$(id -u)" -eq 0 ] || skip "it boots machines in namespaces and needs root"
for part in node.tar.xz.1 program.tar.xz; do
    compgen -G "$archives/[0-9]/$part" >/dev/null ||
        skip "no $part in $archives; make it where Docker and pip work: python -m tests.gpu.pack"
done

mkdir -p "$out"
out=$(realpath "$out")
cgroups=/sys/fs/cgroup
[ -e $cgroups/cgroup.controllers ] || cgroups=/sys/fs/cgroup/unified
own=$cgroups/tailrack-test
mkdir -p $own
# A run that was killed leaves its machines and their cgroups.
echo 1 2>/dev/null >$own/cgroup.kill || :
find "$own" -mindepth 1 -depth -type d -exec rmdir {} + 2>/dev/null || :
# As many controllers for the machines as this one has free.
read -ra controllers <$cgroups/cgroup.controllers || :
for controller in "${controllers[@]}"; do
    for group in "$cgroups" "$own"; do echo "+$controller" 2>/dev/null >"$group/cgroup.subtree_control" || :; done
done
work=$(mktemp -d /var/tmp/tailrack-test-XXXXXX)
# shellcheck disable=SC2329  # called by the trap
end() {
    rm -rf --one-file-system "$work"
    # The last processes in it have just been killed.
    for _ in {1..50}; do
        if find "$own" -depth -type d -exec rmdir {} + 2>/dev/null; then return; fi
        sleep 0.1
    done
}
trap end EXIT
# Who interrupts it gets what was found until then; a second time ends it at once. In a session of its own the tests hear
# of it once.
trap 'trap "kill -9 $child" INT TERM; pkill -INT -P "$child"' INT TERM
setsid unshare --mount --net --ipc --pid --fork --kill-child bash tests/gpu/enter.sh "$archives" "$out" "$own" "$work" "$@" &
child=$!
status=0
while kill -0 $child 2>/dev/null; do
    status=0
    wait $child || status=$?
done
exit $status
