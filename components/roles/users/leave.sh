#!/bin/bash
# uses: users/sessions
# Remove the accounts that tailrack created, with their crontabs and lingering sessions. Their files on the share keep their uids,
# so the next account with such a uid owns them.

users_leave() {
    local groups=/var/lib/tailrack/groups name
    [ -e "$MADE_HERE" ] || return 0
    while read -r name; do
        if id -u "$name" >/dev/null 2>&1; then forget_account "$name"; fi
    done <"$MADE_HERE"
    [ -e "$groups" ] || return 0
    while read -r name; do
        # userdel has removed most of them.
        if getent group "$name" >/dev/null; then groupdel "$name" || echo "group $name stays: it has other members"; fi
    done <"$groups"
}

# Retry: a process may have started in between.
forget_account() {
    local name=$1 _
    if command -v crontab >/dev/null && crontab -u "$name" -l >/dev/null 2>&1; then crontab -u "$name" -r; fi
    rm -f "/var/lib/systemd/linger/$name"
    for _ in 1 2 3 4 5; do
        if userdel "$name"; then return 0; fi
        end_sessions
        sleep 0.5
    done
    echo "account $name stays: it still has processes"
    return 1
}
