#!/bin/bash
# uses: users/sessions
# Accounts that the cluster has made are gone, and with them what would run in their name. Their files on the share stay,
# under their numbers: who is given the number next has them.

users_leave() {
    local groups=/var/lib/tailrack/groups name
    [ -e "$MADE_HERE" ] || return 0
    while read -r name; do
        if id -u "$name" >/dev/null 2>&1; then forget_account "$name"; fi
    done <"$MADE_HERE"
    [ -e "$groups" ] || return 0
    while read -r name; do
        # userdel takes most of them along.
        if getent group "$name" >/dev/null; then groupdel "$name" || echo "group $name stays: somebody else is in it"; fi
    done <"$groups"
}

# Tried again for a process that has come in between.
forget_account() {
    local name=$1 _
    if command -v crontab >/dev/null && crontab -u "$name" -l >/dev/null 2>&1; then crontab -u "$name" -r; fi
    rm -f "/var/lib/systemd/linger/$name"
    for _ in 1 2 3 4 5; do
        if userdel "$name"; then return 0; fi
        end_sessions
        sleep 0.5
    done
    echo "account $name stays: something of it runs still"
    return 1
}
