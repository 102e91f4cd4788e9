#!/bin/bash
# What stands against users of the cluster on a machine.
#
# USERS_LINES   `name uid gid`, one a line

user_clashes() {
    local name uid other
    while read -r name uid _; do
        other=$(getent passwd "$uid" | cut -d: -f1 || :)
        if [ -n "$other" ] && [ "$other" != "$name" ]; then echo "uid $uid is $other here and should be $name"; fi
        other=$(getent passwd "$name" | cut -d: -f3 || :)
        if [ -n "$other" ] && [ "$other" != "$uid" ]; then echo "user $name has uid $other here and should have $uid"; fi
    done <<<"$USERS_LINES"
}

refuse_user_clashes() {
    local clashes
    clashes=$(user_clashes)
    [ -z "$clashes" ] || fail "${clashes//$'\n'/; }" \
        "choose other uids in tailrack:users, or remove or renumber ('usermod -u') these accounts on $HOST_NAME"
}
