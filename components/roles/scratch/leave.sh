#!/bin/bash
# uses: scratch/sweep
# Remove the scratch folders. Their jobs have ended before.

scratch_leave() {
    local folder path
    if [ -e "$SCRATCH" ]; then
        while read -r folder; do
            for path in "${folder:?}"/*; do
                if [ -d "$path" ]; then empty_folder "$path" --wait -p RuntimeMaxSec=100; fi
            done
            [ ! -d "$folder" ] || rmdir "$folder" 2>/dev/null || echo "$folder stays: some files of jobs could not be removed"
        done < <(grep . "$SCRATCH")
    fi
    if [ -e /var/lib/tailrack/scratch-made ]; then
        # Inner folders first; folders with other files stay.
        while read -r folder; do rmdir "$folder" 2>/dev/null || :; done < <(sort -r /var/lib/tailrack/scratch-made)
    fi
    rm -f "$SCRATCH" /var/lib/tailrack/scratch-made
}
