#!/bin/bash
# The record of costs: one file for each node, one line for each period in the cluster at one price.
#
#   FROM UNTIL AMOUNT CURRENCY     seconds since 1970, `-` while in the cluster; price per hour, `- -` without one

COSTS_DIR=$STATE_DIR/costs
# Lines to keep for each node, and days to keep a node that has left.
COSTS_LINES=200
COSTS_DAYS=400

# Start a period for node $1 at price $2, unless the last line already has it.
open_costs() {
    local file=$COSTS_DIR/$1 price=${2:-- -} last='' ended now
    install -d -m 0755 "$COSTS_DIR"
    [ ! -f "$file" ] || last=$(tail -n 1 "$file")
    [ "${last#* }" != "- $price" ] || return 0
    now=$(date +%s)
    ended=$(ended_costs "$file" "$now")
    ensure_file "$file" 0644 root:root "${ended:+$ended$'\n'}$now - $price"
}

# End the current period of node $1.
close_costs() {
    local file=$COSTS_DIR/$1
    [ ! -f "$file" ] || ensure_file "$file" 0644 root:root "$(ended_costs "$file" "$(date +%s)")"
}

# Print the last lines of file $1, with an open period ended at time $2.
ended_costs() {
    [ ! -f "$1" ] || tail -n "$((COSTS_LINES - 1))" "$1" | awk -v until="$2" '$2 == "-" { $2 = until } { print }'
}

forget_old_costs() {
    local file
    while read -r file; do
        grep -qE '^[0-9]+ - ' "$file" || rm -f "$file"
    done < <(find "$COSTS_DIR" -type f -mtime "+$COSTS_DAYS")
}
