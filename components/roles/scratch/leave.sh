#!/bin/bash
# uses: scratch/sweep
# No room for jobs any more, and nothing of theirs: they have ended before this.

scratch_leave() {
    local folder path
    if [ -e "$SCRATCH" ]; then
        while read -r folder; do
            for path in "${folder:?}"/*; do
                if [ -d "$path" ]; then discard "$path" --wait -p RuntimeMaxSec=100; fi
            done
            [ ! -d "$folder" ] || rmdir "$folder" 2>/dev/null || echo "$folder stays: not all that jobs left there is gone"
        done < <(grep . "$SCRATCH")
    fi
    if [ -e /var/lib/tailrack/scratch-made ]; then
        # The inner ones first; what others have put there stays.
        while read -r folder; do rmdir "$folder" 2>/dev/null || :; done < <(sort -r /var/lib/tailrack/scratch-made)
    fi
    rm -f "$SCRATCH" /var/lib/tailrack/scratch-made
}
