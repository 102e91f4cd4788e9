#!/bin/bash
# What jobs have left in the folders that were theirs, on disks of this node's own.

# Line by line: the folder in which jobs have theirs now, empty where there is none; then others in which some may be left.
SCRATCH=/etc/tailrack/scratch
# A file for each job that is on this node, by its number (health/jobs).
JOBS_HERE=/run/tailrack-private/jobs

# Have what is in a folder removed as its owner, beside everything else and however long it takes: root would follow what is put
# in its way. The folder itself lies in one of root's, and is removed by root when it is empty. More words of systemd-run
discard() {
    local path=$1 owner group
    shift
    read -r owner group < <(stat -c '%u %g' "$path") || return 0
    # A folder may be one that not even its owner may write. By its name, no folder is being removed twice.
    # shellcheck disable=SC2016  # of the inner shell
    systemd-run -q --collect --unit="tailrack-scratch-${path##*/}" -p User="$owner" -p Group="$group" -p Nice=19 \
        -p IOSchedulingClass=idle -p NoNewPrivileges=yes -p RuntimeMaxSec=6h -p "ExecStopPost=+-/bin/rmdir $path" "$@" \
        /bin/sh -c 'find "$1" -xdev -type d ! -perm -u=rwx -exec chmod u+rwx {} +; exec find "$1" -xdev -mindepth 1 -delete' \
        - "$path" 2>/dev/null || :
}

# The folders of jobs that are on this node no more.
sweep() {
    local folder path name line=0
    [ -e "$SCRATCH" ] || return 0
    while read -r folder; do
        line=$((line + 1))
        [ -d "$folder" ] || continue
        for path in "$folder"/[0-9]*; do
            name=${path##*/}
            # First renamed, as the same job may begin here again.
            if [ -d "$path" ] && [ ! -e "$JOBS_HERE/$name" ]; then mv -T "$path" "$folder/gone.$name.$RANDOM"; fi
        done
        for path in "$folder"/gone.*; do
            if [ -d "$path" ]; then discard "$path" --no-block; fi
        done
        # No job is given one in there any more.
        [ "$line" -eq 1 ] || rmdir "$folder" 2>/dev/null || :
    done <"$SCRATCH"
}
