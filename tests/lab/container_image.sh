#!/bin/bash
# Make the lab's image: what is on this machine of a shell, Python with mpi4py, OpenMPI and sshd, as a squashfs file.
set -eu
target=$1
libs=/usr/lib/x86_64-linux-gnu
folder=$(mktemp -d)
cd "$folder"
take() { tar -C / -cf - --no-recursion -T - 2>/dev/null | tar -xf -; }
{
    # Three for the compiled parts of Python packages that a job brings along.
    for package in dash bash coreutils libc-bin hostname openssh-server openssh-client python3-minimal python3.13-minimal \
        libpython3.13-minimal libpython3.13-stdlib python3-mpi4py openmpi-common libc6 libgcc-s1 libstdc++6; do
        dpkg -L "$package"
    done
    find "$libs"/openmpi* "$libs"/pmix* /usr/share/openmpi /etc/openmpi /usr/share/pmix* /etc/alternatives
} 2>/dev/null | grep -ve /share/doc -e /share/man -e /tests/ -e /test/ | sort -u >list || :
# shellcheck disable=SC2185  # the paths are in the list
tr '\n' '\0' <list | find -files0-from - -maxdepth 0 -type f \( -perm /111 -o -name '*.so*' \) >programs 2>/dev/null || :
xargs -a programs ldd 2>/dev/null | awk '/=> \//{print $3} /^\t\/lib64/{print $1}' | sort -u >needed || :
xargs -a needed -n1 readlink -f >found
cat found >>needed
printf '%s\n' /bin /lib /lib64 /sbin /usr /usr/bin /usr/lib /usr/lib64 | take
take <list
sed 's,^/lib,/usr/lib,;s,^/usr/usr,/usr,' needed | take
rm -f list programs needed found
mkdir -p etc tmp root proc sys dev run var home usr/sbin
echo 'PRETTY_NAME="An image of the lab"' >etc/os-release
echo root:x:0:0::/root:/bin/sh >etc/passwd
echo root:x:0: >etc/group
mksquashfs . "$target.new" -all-root -no-progress -quiet -noappend -comp zstd -Xcompression-level 1
mv "$target.new" "$target"
rm -rf "$folder"
