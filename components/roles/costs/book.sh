#!/bin/bash
# The book of costs: a file a node, a line for each time that it was in the cluster at one price.
#
#   FROM UNTIL AMOUNT CURRENCY     seconds since 1970, `-` while it is there; an hour's price, or `- -` without one

COSTS_DIR=$STATE_DIR/costs
# Lines of a node that are kept, and days after which one that has left is forgotten.
COSTS_LINES=200
COSTS_DAYS=400

# From now on a node is there at a price. Nothing changes where that is written already.
open_costs() {
    local file=$COSTS_DIR/$1 price=${2:-- -} last='' before now
    install -d -m 0755 "$COSTS_DIR"
    [ ! -f "$file" ] || last=$(tail -n 1 "$file")
    [ "${last#* }" != "- $price" ] || return 0
    now=$(date +%s)
    before=$(ended_costs "$file" "$now")
    ensure_file "$file" 0644 root:root "${before:+$before$'\n'}$now - $price"
}

# From now on it is not.
close_costs() {
    local file=$COSTS_DIR/$1
    [ ! -f "$file" ] || ensure_file "$file" 0644 root:root "$(ended_costs "$file" "$(date +%s)")"
}

# Its last lines; one that is open ends at a time.
ended_costs() {
    [ ! -f "$1" ] || tail -n "$((COSTS_LINES - 1))" "$1" | awk -v until="$2" '$2 == "-" { $2 = until } { print }'
}

forget_old_costs() {
    local file
    while read -r file; do
        grep -qE '^[0-9]+ - ' "$file" || rm -f "$file"
    done < <(find "$COSTS_DIR" -type f -mtime "+$COSTS_DAYS")
}
