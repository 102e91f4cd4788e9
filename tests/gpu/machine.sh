#!/bin/bash
# Become a machine: systemd in namespaces of its own, as process 1 of its tree (machines.py calls this).
#   machine.sh NAME TREE DISK FOLDERS PYTORCH GPU...
# DISK is a folder on a disk. FOLDERS lists the folders of the libraries of GPUs, PYTORCH after its first line what a
# Python with PyTorch is made of: both are for machines with GPUs. Each GPU is its number in /dev and its
# bus address, `1=0000:00:07.0`.
set -eu
name=$1 root=$2 disk=$3 folders=$4 pytorch=$5
shift 5
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
# Read-only, as in a container: systemd then does not wait for udev, which is not here.
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 dev "$root/dev"
device() { mknod -m "$2" "$root/dev/$1" c "$3" "$4"; }
for entry in null:3 zero:5 full:7 random:8 urandom:9; do device "${entry%:*}" 666 1 "${entry#*:}"; done
device tty 666 5 0
device kmsg 644 1 11
device fuse 666 10 229
device autofs 644 10 235
mkdir -p "$root"/dev/{net,pts,shm,mqueue}
device net/tun 666 10 200
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -t mqueue mqueue "$root/dev/mqueue" || :
ln -s /proc/self/fd "$root/dev/fd"
for stream in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${stream%%:*}" "$root/dev/${stream#*:}"; done

# GPUs as container runtimes give them: some device files, the driver's word on those, and no leave to make others,
# which the driver's libraries would do for root.
same() { if [ -e "/dev/$1" ]; then device "$1" 666 $((16#$(stat -c %t "/dev/$1"))) $((16#$(stat -c %T "/dev/$1"))); fi; }
if [ -d /proc/driver/nvidia ]; then
    mount -t tmpfs -o mode=555 nvidia "$root/proc/driver/nvidia"
    if [ $# -gt 0 ]; then
        cp /proc/driver/nvidia/version "$root/proc/driver/nvidia/"
        sed 's/^ModifyDeviceFiles: .*/ModifyDeviceFiles: 0/' /proc/driver/nvidia/params >"$root/proc/driver/nvidia/params"
    fi
fi
if [ $# -gt 0 ]; then
    sed 1d "$pytorch" | while read -r path; do
        if [ -d "$path" ]; then mkdir -p "$root$path"; else touch "$root$path"; fi
        mount --bind "$path" "$root$path"
    done
    while read -r folder; do
        mkdir -p "$root$folder"
        mount --rbind "$folder" "$root$folder"
    done <"$folders"
    for entry in nvidiactl nvidia-uvm nvidia-uvm-tools; do same $entry; done
    for gpu in "$@"; do
        number=${gpu%%=*} bus=${gpu#*=}
        same "nvidia$number"
        mkdir -p "$root/proc/driver/nvidia/gpus/$bus"
        mount --bind "/proc/driver/nvidia/gpus/$bus" "$root/proc/driver/nvidia/gpus/$bus"
    done
    if [ -d /dev/nvidia-caps ]; then
        mkdir "$root/dev/nvidia-caps"
        mount --rbind /dev/nvidia-caps "$root/dev/nvidia-caps"
    fi
    chroot "$root" ldconfig
fi
# nfs-ganesha exports nothing that is in memory.
mkdir -p "$disk/$name" "$root/export"
mount --bind "$disk/$name" "$root/export"
mount -t tmpfs -o mode=755 run "$root/run"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
hostname "$name"
cd "$root"
# A real change of root lets processes in it make user namespaces (for containers without root); chroot alone does not.
mkdir -p before
pivot_root . before
exec env -i container=docker PATH=/usr/sbin:/usr/bin \
    sh -c 'cd / && umount -l /before && rmdir /before && exec /lib/systemd/systemd --log-target=console'
