#!/bin/bash
# In namespaces of its own, change into the tree of a node and run the tests there (run.sh calls this):
#   enter.sh ARCHIVES OUT CGROUP WORK [PYTEST ARGUMENT...]
# The trees of all machines are in memory: a GPU machine has much of it, and its disk may be slow.
set -euo pipefail
archives=$1 out=$2 cgroup=$3 work=$4 project=$PWD
shift 4
trees=$work/trees
mkdir "$trees" "$work/disk"
mount --make-rprivate /
mount -t tmpfs -o mode=755,size=16g trees "$trees"
mkdir "$trees/node"
cat "$archives/1/node.tar.xz.1" "$archives/2/node.tar.xz.2" | tar -C "$trees/node" -xJ

# What a GPU program loads. Where it lies in folders of its own, machines get those at the same paths (the list says
# which); what lies among this machine's own libraries is copied. And what there is of it, for ldconfig.
: >"$trees/folders"
for folder in /usr/local/nvidia /usr/local/cuda /usr/local/cuda-1[0-9]* /opt/torch; do
    if [ -d "$folder" ] && [ ! -L "$folder" ]; then echo "$folder" >>"$trees/folders"; fi
done
for library in $(find -L /usr/lib /usr/lib64 -maxdepth 2 \( -name 'libcuda.so.1' -o -name 'libnvidia-ml.so.1' \
    -o -name 'libnvidia-ptxjitcompiler.so.1' -o -name 'libnccl.so.2' -o -name 'libcudart.so.1[0-9]' \) 2>/dev/null || :); do
    cp -L "$library" "$trees/node/usr/lib/x86_64-linux-gnu/"
done
mapfile -t folders <"$trees/folders"
if [ "${#folders[@]}" -gt 0 ]; then
    find "${folders[@]}" -xdev \( -name 'libcuda.so.1' -o -name 'libnvidia-ml.so.1' -o -name 'libnccl.so.2' \
        -o -name 'libcudart.so.1[0-9]' \) -printf '%h\n' 2>/dev/null | grep -v -e /stubs -e compat | sort -u \
        >"$trees/node/etc/ld.so.conf.d/gpu.conf" || :
fi
smi=$(command -v nvidia-smi || find "${folders[@]:-/usr/local}" -name nvidia-smi -type f 2>/dev/null | head -n 1 || :)
if [ -n "$smi" ]; then cp -L "$smi" "$trees/nvidia-smi"; fi

cp -a "$trees/node" "$trees/tests"
tar -C "$trees/tests" -xJf "$archives/2/program.tar.xz"
cd "$trees/tests"
mkdir -p opt/test/{project,trees,disk,out,cgroup} before
mount --bind . .
cd . # onto the mount
mount --rbind /dev dev
mount -t proc proc proc
mount --rbind /sys sys
mount -t tmpfs tmp tmp
mount --bind "$project" opt/test/project
mount --bind "$trees" opt/test/trees
mount --bind "$work/disk" opt/test/disk
mount --bind "$out" opt/test/out
mount --bind "$cgroup" opt/test/cgroup
for folder in "${folders[@]}"; do
    mkdir -p ".$folder"
    mount --rbind "$folder" ".$folder"
done
if [ -n "$smi" ]; then cp "$trees/nvidia-smi" usr/bin/; fi
printf '127.0.0.1 localhost\n10.9.0.1 control.lab\n' >etc/hosts
chroot . ldconfig
pivot_root . before
exec env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONPATH=/opt/test/site PYTHONDONTWRITEBYTECODE=1 PULUMI_SKIP_UPDATE_CHECK=true REHEARSE="${REHEARSE:-}" \
    sh -c 'cd /opt/test/project && umount -l /before && exec python3 -m pytest -p no:cacheprovider "$@"' sh \
    tests/gpu "$@"
