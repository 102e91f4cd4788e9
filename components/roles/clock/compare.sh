#!/bin/bash
# uses: clock/service
# Compare this machine's clock with another's. munge rejects credentials that are five minutes off, programs compare
# times on the share, and with a clock far off no certificate or package is valid.

# Print a server's time in seconds, from its unencrypted answer: host, port.
http_time() {
    local date
    # shellcheck disable=SC2016  # read by the inner shell
    date=$(timeout 5 bash -c 'exec 5<>"/dev/tcp/$0/$1" && printf "HEAD / HTTP/1.0\r\nHost: %s\r\n\r\n" "$0" >&5 && cat <&5' "$1" "$2" |
        sed -n 's/^[Dd]ate: *\([^\r]*\).*/\1/p' | sed -n 1p)
    [ -n "$date" ] && date -d "$date" +%s
}

# Fail if this clock differs from another by more than a limit: time, limit in seconds, name of the other clock.
require_clock() {
    local now difference
    now=$(date +%s)
    difference=$((now - $1))
    note "the clock is ${difference#-}s from $3"
    [ "${difference#-}" -le "$2" ] || fail \
        "the clock here is ${difference#-}s $([ "$difference" -lt 0 ] && echo behind || echo ahead of) $3" \
        "$(clock_remedy "$1"); then run up again"
}
