#!/bin/bash
# Make an image of what is on this machine, which has GPUs: nccl-tests, a shell, Python, Open MPI, and the driver's libraries.
#   container_image.sh IMAGE [PYTHON]
# With PYTHON, python3 in it is that one, which is not in it: what it is made of is mounted. The libraries lie where a loader without a cache looks, as in an image that brings its own.
set -eu
target=$1
libs=/usr/lib/x86_64-linux-gnu
folder=$(mktemp -d /var/tmp/image.XXXXXX)
cd "$folder"
mkdir -p usr/bin usr/sbin ".$libs" usr/lib64 etc tmp root proc sys dev run var home usr/share
for name in bin sbin lib lib64; do ln -s "usr/$name" "$name"; done
programs=(bash sh cat cut chmod dirname env grep head id ls mkdir mktemp mv rm sed sleep sort stat tail true uname tr python3)
for name in "${programs[@]}"; do cp -L "$(type -P "$name")" usr/bin/; done
cp -L "$(type -P mawk gawk | head -n 1)" usr/bin/awk
cp /usr/local/bin/all_reduce_perf /usr/local/bin/gpus-seen usr/bin/
cp -a /usr/lib/python3.* usr/lib/
for path in "$libs"/openmpi "$libs"/openmpi5 "$libs"/pmix* /usr/share/openmpi /usr/share/pmix* /usr/share/prte* /etc/openmpi \
    /etc/alternatives /etc/nccl.conf; do
    [ ! -e "$path" ] || cp -a --parents "$path" .
done
# What the driver and NCCL load by name while they run.
# The loader takes the first of several.
ldconfig -p | awk '$1 ~ /^lib(cuda|nvidia-ml|nvidia-ptxjitcompiler|nccl|cudart)\.so\.[0-9]+$/ && !seen[$1]++ { print $NF }' >loaded
while read -r library; do cp -L "$library" ".$libs/$(basename "$library")"; done <loaded
find . /usr/local/bin/all_reduce_perf -type f \( -perm /111 -o -name '*.so*' \) >files
xargs -a files ldd 2>/dev/null | awk '/=> \//{ print $1, $3 }' | sort -u >needed # ldd fails for what is no program
while read -r name path; do
    [ -e ".$libs/$name" ] || cp -L "$path" ".$libs/$name"
done <needed
cp -L /lib64/ld-linux-x86-64.so.2 usr/lib64/
rm -f loaded files needed
if [ -n "${2-}" ]; then
    rm usr/bin/python3
    printf '#!/bin/sh\nexec %s "$@"\n' "$2" >usr/bin/python3
    chmod 755 usr/bin/python3
    # What older programs than the C library here ask for by name.
    for name in libutil.so.1 librt.so.1 libdl.so.2 libpthread.so.0; do cp -L "$libs/$name" ".$libs/"; done
fi
echo 'PRETTY_NAME="An image with nccl-tests"' >etc/os-release
echo root:x:0:0::/root:/bin/sh >etc/passwd
echo root:x:0: >etc/group
mksquashfs . "$target.new" -all-root -no-progress -quiet -noappend -comp zstd -Xcompression-level 1
mv "$target.new" "$target"
rm -rf "$folder"
