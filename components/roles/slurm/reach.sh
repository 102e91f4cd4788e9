#!/bin/bash
# Whether a node's clock is the head node's: munge refuses what was made more than five minutes before or after, and a
# shared file system with two clocks confuses whoever compares times.
#
# HEAD_ADDRESS   tailnet address of the head node

# Seconds that clocks may differ. A machine that keeps its time is right within one.
CLOCK_LIMIT=10

# The head node's time in seconds, from its tailscaled, which answers HTTP at an address that it tells its peers.
clock_of_head() {
    local port date
    port=$(tailscale status --json |
        jq -r --arg address "$HEAD_ADDRESS" '.Peer[] | .PeerAPIURL[]? | select(startswith("http://" + $address + ":")) | split(":")[2]')
    [ -n "$port" ] || return 1
    # shellcheck disable=SC2016  # read by the inner shell
    date=$(timeout 10 bash -c 'exec 5<>"/dev/tcp/$0/$1" && printf "HEAD / HTTP/1.0\r\n\r\n" >&5 && cat <&5' "$HEAD_ADDRESS" "$port" |
        sed -n 's/^[Dd]ate: *\([^\r]*\).*/\1/p' | head -n 1)
    [ -n "$date" ] && date -d "$date" +%s
}

slurm_reach() {
    local theirs ours apart
    if ! theirs=$(clock_of_head); then
        note "the head node does not tell its time at $HEAD_ADDRESS; clocks are not compared"
        return
    fi
    ours=$(date +%s)
    apart=$((ours - theirs))
    note "clocks are ${apart#-}s apart"
    [ "${apart#-}" -le "$CLOCK_LIMIT" ] || fail \
        "the clock here is $((apart < 0 ? -apart : apart))s $([ "$apart" -lt 0 ] && echo behind || echo ahead of) the head node's" \
        "set both right (timedatectl; systemctl restart systemd-timesyncd, or 'chronyc makestep'), then run up again"
}
