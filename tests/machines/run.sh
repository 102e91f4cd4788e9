#!/bin/bash
# Run the tests on virtual machines (README.md): run.sh [PYTEST ARGUMENT...]
# What needs a network is made first. The machines, their network and their tailnet then run in namespaces of their own and
# end with them, however the tests end.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "$(id -u)" -ne 0 ]; then
    printf 'test-machines: it makes disks and networks, and needs root: sudo make test-machines\n' >&2
    exit 1
fi
releases=(trixie bookworm)
[[ " $* " != *' -m short '* ]] || releases=(trixie)
.venv/bin/python -m tests.machines.image "${releases[@]}"
# One cluster, and each file goes on from the one before.
files=()
for name in up share confined head_load rdma reboot leaving debian_12; do files+=("tests/machines/test_$name.py"); done
# Machines that are emulated keep all cores busy: whoever else works here comes first.
exec nice unshare --mount --net --pid --fork --kill-child --mount-proc \
    .venv/bin/python -m pytest -p no:cacheprovider -n 0 -s -x --timeout 7200 "${files[@]}" "$@"
