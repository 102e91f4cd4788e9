#!/bin/bash
# uses: clock/compare
# A clock that is near enough for all that a join needs: certificates, packages, and a time service that sets it right. It
# is compared with that of the tailnet's control server, which every machine reaches.
#
# TAILNET_CONTROL_URL   control server, empty for Tailscale's own

# Seconds. Two machines that differ by as much, one each way, are within what munge takes.
CLOCK_GATE_LIMIT=120

# Encrypted, a server tells no time to who has no right clock; most answer without, if only to say where else to ask.
clock_of_control() {
    local url=$TAILNET_CONTROL_URL host port=80
    [ -n "$url" ] || url=https://controlplane.tailscale.com
    host=${url#*://}
    host=${host%%/*}
    # What is at another port of an encrypted server is encrypted too.
    if [[ $url == http://* && $host == *:* ]]; then port=${host##*:}; fi
    host=${host%%:*}
    [[ $host =~ ^[A-Za-z0-9.-]+$ && $port =~ ^[0-9]+$ ]] && http_time "$host" "$port"
}

clock_check() {
    local theirs
    if theirs=$(clock_of_control); then
        require_clock "$theirs" "$CLOCK_GATE_LIMIT" "that of the tailnet's control server"
    else
        note "the control server does not tell its time without encryption; a node's clock is compared with the head node's as it joins"
    fi
}
