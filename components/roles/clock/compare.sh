#!/bin/bash
# uses: clock/service
# This machine's clock beside another's. munge refuses what was made more than five minutes before or after, a shared file
# system with two clocks confuses whoever compares times, and with a clock far off no certificate and no package holds.

# The time in seconds that a server says in its answer, without encryption: host, port.
http_time() {
    local date
    # shellcheck disable=SC2016  # read by the inner shell
    date=$(timeout 5 bash -c 'exec 5<>"/dev/tcp/$0/$1" && printf "HEAD / HTTP/1.0\r\nHost: %s\r\n\r\n" "$0" >&5 && cat <&5' "$1" "$2" |
        sed -n 's/^[Dd]ate: *\([^\r]*\).*/\1/p' | sed -n 1p)
    [ -n "$date" ] && date -d "$date" +%s
}

# Stop where the clock here is further from another's time than so many seconds: time, limit, whose.
require_clock() {
    local ours apart
    ours=$(date +%s)
    apart=$((ours - $1))
    note "the clock is ${apart#-}s from $3"
    [ "${apart#-}" -le "$2" ] || fail \
        "the clock here is ${apart#-}s $([ "$apart" -lt 0 ] && echo behind || echo ahead of) $3" "$(clock_remedy "$1"); then run up again"
}
