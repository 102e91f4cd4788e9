#!/bin/bash
# Remove files that jobs have left in their scratch folders on this node's disks. The scripts around jobs contain it;
# steps run sweep.py.

# First line: the present parent of jobs' folders, empty without one; then former parents that may still contain some.
SCRATCH=/etc/tailrack/scratch
# One line: the days and percents of caches, and the hours of copies.
LIMITS=/etc/tailrack/scratch-limits
# One file per job on this node, named by its number (health/jobs).
JOBS_HERE=/run/tailrack-private/jobs
# It makes the copies of a folder (after_job.py).
SYNC=/usr/local/lib/tailrack/scratch-sync

# Run a command for a folder as its owner, in the background: root would follow links that the owner puts in the way.
# root owns the parent and removes the empty folder: path, options of systemd-run, the command.
as_owner() {
    local path=$1 owner group
    shift
    read -r owner group < <(stat -c '%u %g' "$path") || return 0
    # The unit's name prevents handling a folder twice at once.
    systemd-run -q --collect --unit="tailrack-scratch-${path##*/}" -p User="$owner" -p Group="$group" \
        -p NoNewPrivileges=yes -p Nice=19 -p "ExecStopPost=+-/bin/rmdir $path" --no-block "$@" 2>/dev/null || :
}

# Empty a folder, however long it takes.
empty_folder() {
    # Even the owner may lack write permission on a folder.
    # shellcheck disable=SC2016  # of the inner shell
    as_owner "$1" -p IOSchedulingClass=idle -p RuntimeMaxSec=6h \
        /bin/sh -c 'find "$1" -xdev -type d ! -perm -u=rwx -exec chmod u+rwx {} +; exec find "$1" -xdev -mindepth 1 -delete' \
        - "$1"
}

# Print for how many hours copies may go on after a job; 0 without scratch space.
sync_hours() {
    local hours=0
    { read -r _ _ hours <"$LIMITS"; } 2>/dev/null
    printf '%d' "${hours:-0}"
}

# Make the copies of a folder (tailrack sync); the program then empties the folder. It has no time left after the limit.
copy_folder() {
    local path=$1 began seconds
    seconds=$(($(sync_hours) * 3600 + 600))
    IFS=. read -r _ _ began _ <<<"${path##*/}"
    if [ "$(date +%s)" -gt $((10#0${began//[!0-9]/} + seconds)) ]; then
        mv -T "$path" "${path%/*}/gone.${path##*/sync.}"
        return
    fi
    # A user's rclone config can run programs, which must not get GPUs without a job.
    as_owner "$path" -p CPUQuota=100% -p MemoryMax=2G -p TasksMax=256 -p DevicePolicy=closed \
        -p RuntimeMaxSec="$seconds" "$SYNC" "$path"
}

# Rename a job's folder, because the same job may start here again: `sync.` if it has copies to make, else `gone.`.
put_aside() {
    local path=$1 kind=gone
    # stat follows no link here, and the folder is in one of root's.
    if [ "$(sync_hours)" -gt 0 ] && [ "$(stat -c %F "$path/.tailrack-sync" 2>/dev/null)" = directory ]; then kind=sync; fi
    mv -T "$path" "${path%/*}/$kind.${path##*/}.$(date +%s).$RANDOM"
}

# Empty the folders of jobs that are no longer on this node, after their copies are made.
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
        for path in "$folder"/sync.*; do
            if [ -d "$path" ]; then copy_folder "$path"; fi
        done
        for path in "$folder"/gone.*; do
            if [ -d "$path" ]; then empty_folder "$path"; fi
        done
        # No new jobs get folders there.
        [ "$line" -eq 1 ] || rmdir "$folder" 2>/dev/null || :
    done <"$SCRATCH"
}
