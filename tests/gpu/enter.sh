#!/bin/bash
# In namespaces of its own, change into the tree of a node and run the tests there (run.sh calls this):
#   enter.sh ARCHIVES OUT CGROUP WORK [PYTEST ARGUMENT...]
# MODULE=NAME in the environment runs that Python module in the place of pytest.
# The trees of all machines are in memory: a GPU machine has much of it, and its disk may be slow.
set -euo pipefail
archives=$1 out=$2 cgroup=$3 work=$4 project=$PWD
shift 4
module=(pytest -p no:cacheprovider tests/gpu)
if [ -n "${MODULE:-}" ]; then module=("$MODULE"); fi
trees=$work/trees
mkdir "$trees" "$work/disk"
mount --make-rprivate /
mount -t tmpfs -o mode=755,size=40g trees "$trees"
mkdir "$trees/node"
cat "$archives"/[0-9]/node.tar.xz.[0-9] | tar -C "$trees/node" -xJ

# What a GPU program loads: machines get the folders that have it, at the same paths, and a list of them for ldconfig.
# What lies among this machine's own libraries is copied.
libraries=(-name libcuda.so.1 -o -name libnvidia-ml.so.1 -o -name libnvidia-ptxjitcompiler.so.1 -o -name 'libcudart.so.1[0-9]')
others=(-path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var -o -path /home)
find / /usr/local/nvidia -xdev \( "${others[@]}" \) -prune -o \( "${libraries[@]}" \) -printf '%h\n' 2>/dev/null |
    grep -v -e /stubs -e compat | sort -u >"$trees/found" || :
# One NCCL of those that lie about: PyTorch's, or the one that this machine's loader takes. The loader takes the first folder.
nccl=$(python3 -c 'import nvidia.nccl; print(f"{list(nvidia.nccl.__path__)[0]}/lib/libnccl.so.2")' 2>/dev/null) ||
    nccl=$(ldconfig -p | awk '$1 == "libnccl.so.2" && !found++ { print $NF }')
if [ -e "$nccl" ]; then
    { dirname "$nccl"; grep -vxF "$(dirname "$nccl")" "$trees/found" || :; } >"$trees/sorted"
    mv "$trees/sorted" "$trees/found"
fi
grep -v -E '^(/usr)?/lib(32|64)?(/|$)' "$trees/found" >"$trees/folders" || :
mapfile -t folders <"$trees/folders"
cp "$trees/folders" "$trees/node/etc/ld.so.conf.d/gpu.conf"
case $nccl in /lib/* | /usr/lib/* | /lib64/* | /usr/lib64/*) cp -L "$nccl" "$trees/node/usr/lib/x86_64-linux-gnu/" ;; esac
grep -E '^(/usr)?/lib(64)?(/|$)' "$trees/found" | while read -r folder; do
    find "$folder/" -maxdepth 1 \( "${libraries[@]}" \) -exec cp -L {} "$trees/node/usr/lib/x86_64-linux-gnu/" \;
done || :
# PyTorch, where this machine's python3 has it in an environment of its own: that one, and the Python that it is made of.
# The first line is the Python to call.
python3 - >"$trees/pytorch" 2>/dev/null <<'END' || : >"$trees/pytorch"
import os, sys, sysconfig, torch
if sys.prefix == sys.base_prefix: sys.exit(1)
print(sys.executable, sys.prefix, sysconfig.get_path("stdlib"), os.path.realpath(sys.executable), sep="\n")
END

smi=$(command -v nvidia-smi || find /usr/local/nvidia -name nvidia-smi -type f 2>/dev/null | head -n 1 || :)
if [ -n "$smi" ]; then cp -L "$smi" "$trees/nvidia-smi"; fi

cp -a "$trees/node" "$trees/tests"
tar -C "$trees/tests" -xJf "$archives"/[0-9]/program.tar.xz
cd "$trees/tests"
mkdir -p srv/test/{project,trees,disk,out,cgroup} before
mount --bind . .
cd . # onto the mount
mount --rbind /dev dev
mount -t proc proc proc
mount --rbind /sys sys
mount -t tmpfs tmp tmp
mount --bind "$project" srv/test/project
mount --bind "$trees" srv/test/trees
mount --bind "$work/disk" srv/test/disk
mount --bind "$out" srv/test/out
mount --bind "$cgroup" srv/test/cgroup
sed 1d "$trees/pytorch" | while read -r path; do
    if [ -d "$path" ]; then mkdir -p ".$path"; else touch ".$path"; fi
    mount --bind "$path" ".$path"
done
for folder in "${folders[@]}"; do
    mkdir -p ".$folder"
    mount --rbind "$folder" ".$folder"
done
if [ -n "$smi" ]; then cp "$trees/nvidia-smi" usr/bin/; fi
printf '127.0.0.1 localhost\n10.9.0.1 control.lab\n' >etc/hosts
chroot . ldconfig
pivot_root . before
# What a script starts in the background does not hear of an interrupt otherwise.
exec env -i --default-signal=INT HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONPATH=/srv/test/site PYTHONDONTWRITEBYTECODE=1 PULUMI_SKIP_UPDATE_CHECK=true REHEARSE="${REHEARSE:-}" \
    sh -c 'cd /srv/test/project && umount -l /before && exec python3 -m "$@"' sh "${module[@]}" "$@"
