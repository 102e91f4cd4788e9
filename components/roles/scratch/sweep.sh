#!/bin/bash
# Remove files that jobs have left in their scratch folders on this node's disks. The scripts around jobs contain it;
# steps run sweep.py.

# First line: the present parent of jobs' folders, empty without one; then former parents that may still contain some.
SCRATCH=/etc/tailrack/scratch
# One file per job on this node, named by its number (health/jobs).
JOBS_HERE=/run/tailrack-private/jobs

# Empty a folder as its owner, in the background and however long it takes: root would follow links that the owner puts
# in the way. root owns the parent and removes the empty folder.
empty_folder() {
    local path=$1 owner group
    read -r owner group < <(stat -c '%u %g' "$path") || return 0
    # The unit's name prevents handling a folder twice at once. Even the owner may lack write permission on a folder.
    # shellcheck disable=SC2016  # of the inner shell
    systemd-run -q --collect --unit="tailrack-scratch-${path##*/}" -p User="$owner" -p Group="$group" \
        -p NoNewPrivileges=yes -p Nice=19 -p IOSchedulingClass=idle -p RuntimeMaxSec=6h \
        -p "ExecStopPost=+-/bin/rmdir $path" --no-block \
        /bin/sh -c 'find "$1" -xdev -type d ! -perm -u=rwx -exec chmod u+rwx {} +; exec find "$1" -xdev -mindepth 1 -delete' \
        - "$path" 2>/dev/null || :
}

# Rename a job's folder, because the same job may start here again.
put_aside() {
    mv -T "$1" "${1%/*}/gone.${1##*/}.$(date +%s).$RANDOM"
}

# Empty the folders of jobs that are no longer on this node.
sweep() {
    local folder path name line=0
    [ -e "$SCRATCH" ] || return 0
    while read -r folder; do
        line=$((line + 1))
        [ -d "$folder" ] || continue
        for path in "$folder"/[0-9]*; do
            name=${path##*/}
            if [ -d "$path" ] && [ ! -e "$JOBS_HERE/$name" ]; then put_aside "$path"; fi
        done
        for path in "$folder"/gone.*; do
            if [ -d "$path" ]; then empty_folder "$path"; fi
        done
        # No new jobs get folders there.
        [ "$line" -eq 1 ] || rmdir "$folder" 2>/dev/null || :
    done <"$SCRATCH"
}
