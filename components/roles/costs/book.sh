#!/bin/bash
# End the current period in the record of costs (stays.py), for slurm/expire.sh.

COSTS_DIR=$STATE_DIR/costs
# Lines to keep for each node.
COSTS_LINES=200

# End the current period of node $1.
close_costs() {
    local file=$COSTS_DIR/$1
    [ ! -f "$file" ] || ensure_file "$file" 0644 root:root "$(ended_costs "$file" "$(date +%s)")"
}

# Print the last lines of file $1, with an open period ended at time $2.
ended_costs() {
    [ ! -f "$1" ] || tail -n "$((COSTS_LINES - 1))" "$1" | awk -v until="$2" '$2 == "-" { $2 = until } { print }'
}
