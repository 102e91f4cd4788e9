#!/bin/bash
# uses: scratch/sweep
# The folder in which jobs have theirs, before slurmd starts.
#
# SCRATCH_FOLDER   on a disk of this machine's own; empty where jobs have no such room

# In the config's folder, which may be other people's too.
JOBS_FOLDER=tailrack-jobs
# Folders that were not there before, one a line.
SCRATCH_MADE=$STATE_DIR/scratch-made

# Fails where anybody but root could put something else in a folder's place.
only_roots() {
    local path=$1 mode owner
    while [ "$path" != / ]; do
        [ ! -L "$path" ] || fail "$path is a link on $HOST_NAME, and should be a folder for jobs" \
            "write where it leads in tailrack:scratch.folder, then run up again"
        if [ -e "$path" ]; then
            read -r owner mode < <(stat -c '%u %a' "$path")
            [ -d "$path" ] || fail "$path is no folder on $HOST_NAME" "write a folder in tailrack:scratch.folder, then run up again"
            [ "$owner" = 0 ] || fail "$path is of uid $owner on $HOST_NAME, who could put anything in the place of jobs' folders" \
                "chown root $path there, or write another folder in tailrack:scratch.folder; then run up again"
            if ((8#$mode & 8#22)) && ! ((8#$mode & 8#1000)); then
                fail "$path can be written by others than root on $HOST_NAME (mode $mode), who could take away jobs' folders" \
                    "chmod +t $path there, or write another folder in tailrack:scratch.folder; then run up again"
            fi
        fi
        path=${path%/*}
        path=${path:-/}
    done
}

scratch_compute() {
    local folder=${SCRATCH_FOLDER:+$SCRATCH_FOLDER/$JOBS_FOLDER} path lines
    if [ -n "$folder" ]; then
        only_roots "$folder"
        for path in "$SCRATCH_FOLDER" "$folder"; do
            [ ! -d "$path" ] || continue
            [ -d "${path%/*}" ] || fail "${path%/*} is not there on $HOST_NAME, in which jobs' folder ${path##*/} should be" \
                "mount the disk there, or write another folder in tailrack:scratch.folder; then run up again"
            # Noted before it is made: a folder that stays is better known than not.
            printf '%s\n' "$path" >>"$SCRATCH_MADE"
            mkdir -m 0755 "$path"
        done
    fi
    # Folders of an earlier config are emptied when their jobs have ended.
    lines=$folder
    if [ -e "$SCRATCH" ]; then
        while read -r path; do
            if [ -n "$path" ] && [ "$path" != "$folder" ] && [ -d "$path" ]; then lines+=$'\n'$path; fi
        done <"$SCRATCH"
    fi
    if [ -z "$lines" ]; then
        rm -f "$SCRATCH"
    else
        ensure_file "$SCRATCH" 0644 root:root "$lines"
        sweep
    fi
}
