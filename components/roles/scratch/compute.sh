#!/bin/bash
# uses: scratch/sweep
# Create the parent folder of jobs' scratch folders, before slurmd starts.
#
# SCRATCH_FOLDER   folder on a local disk; empty without scratch space

# Subfolder of the config's folder, which may contain other files.
JOBS_FOLDER=tailrack-jobs
# Folders that this step created, one per line.
SCRATCH_MADE=$STATE_DIR/scratch-made

# Fail if any account but root could replace a folder on the path.
require_root_path() {
    local path=$1 mode owner
    while [ "$path" != / ]; do
        [ ! -L "$path" ] || fail "$path is a link on $HOST_NAME, and must be a folder" \
            "set tailrack:scratch.folder to the link's target, then run up again"
        if [ -e "$path" ]; then
            read -r owner mode < <(stat -c '%u %a' "$path")
            [ -d "$path" ] || fail "$path is not a folder on $HOST_NAME" "set tailrack:scratch.folder to a folder, then run up again"
            [ "$owner" = 0 ] || fail "$path belongs to uid $owner on $HOST_NAME, who could replace jobs' folders" \
                "run 'chown root $path' there, or set tailrack:scratch.folder to another folder; then run up again"
            if ((8#$mode & 8#22)) && ! ((8#$mode & 8#1000)); then
                fail "accounts other than root can write to $path on $HOST_NAME (mode $mode), and could remove jobs' folders" \
                    "run 'chmod +t $path' there, or set tailrack:scratch.folder to another folder; then run up again"
            fi
        fi
        path=${path%/*}
        path=${path:-/}
    done
}

scratch_compute() {
    local folder=${SCRATCH_FOLDER:+$SCRATCH_FOLDER/$JOBS_FOLDER} path lines
    if [ -n "$folder" ]; then
        require_root_path "$folder"
        for path in "$SCRATCH_FOLDER" "$folder"; do
            [ ! -d "$path" ] || continue
            [ -d "${path%/*}" ] || fail "${path%/*}, the parent of the scratch folder ${path##*/}, does not exist on $HOST_NAME" \
                "mount the disk there, or set tailrack:scratch.folder to another folder; then run up again"
            # Note the folder before creating it, so that an interrupted step leaves no unknown folder.
            printf '%s\n' "$path" >>"$SCRATCH_MADE"
            mkdir -m 0755 "$path"
        done
    fi
    # Folders of an earlier config are emptied after their jobs have ended.
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
