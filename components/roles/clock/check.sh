#!/bin/bash
# uses: clock/compare
# Check that the clock is near enough for joining, which needs certificates, packages and a time service. The reference
# is the tailnet's control server, which every machine reaches.
#
# TAILNET_CONTROL_URL   control server; empty for Tailscale's

# Seconds. munge still works between two machines that differ by this much in opposite directions.
CLOCK_GATE_LIMIT=120

# Without encryption, because a wrong clock rejects certificates. Most servers answer, if only with a redirect.
clock_of_control() {
    local url=$TAILNET_CONTROL_URL host port=80
    [ -n "$url" ] || url=https://controlplane.tailscale.com
    host=${url#*://}
    host=${host%%/*}
    # Another port of an encrypted server is encrypted too.
    if [[ $url == http://* && $host == *:* ]]; then port=${host##*:}; fi
    host=${host%%:*}
    [[ $host =~ ^[A-Za-z0-9.-]+$ && $port =~ ^[0-9]+$ ]] && http_time "$host" "$port"
}

clock_check() {
    local control_time
    if control_time=$(clock_of_control); then
        require_clock "$control_time" "$CLOCK_GATE_LIMIT" "that of the tailnet's control server"
    else
        note "the control server sends no time without encryption; nodes compare clocks with the head node as they join"
    fi
}
