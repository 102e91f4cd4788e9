#!/bin/bash
# Query and reload sshd. Also part of separate programs, so it uses nothing of base.sh.

# Query sshd's configuration. If a socket starts sshd, its runtime folder may exist only while it runs (Ubuntu 24.04), and the query
# fails without the folder. An sshd that ends removes it, possibly right now, so retry.
ask_sshd() {
    local errors status tries=0
    while :; do
        install -d -m 0755 /run/sshd
        status=0
        { errors=$(sshd "$@" 2>&1 >&3 3>&-) || status=$?; } 3>&1
        tries=$((tries + 1))
        case $status:$tries:$errors in 0:* | *:5:*) break ;; *"Missing privilege separation directory"*) ;; *) break ;; esac
    done
    [ -z "$errors" ] || printf '%s\n' "$errors" >&2
    return "$status"
}

# Make sshd read its configuration again. An inactive sshd reads it when its socket starts it. An sshd that a socket started ends
# on a reload ("Cannot bind any address"), so restart it. Open sessions survive a restart.
reload_sshd() {
    systemctl -q is-active ssh || return 0
    if systemctl -q is-active ssh.socket; then
        systemctl restart ssh
    else
        systemctl reload ssh || systemctl restart ssh
    fi
}

# The same, only if the configuration is valid.
reload_sound_sshd() {
    ask_sshd -t
    reload_sshd
}
