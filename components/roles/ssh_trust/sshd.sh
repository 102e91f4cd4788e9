#!/bin/bash
# sshd, asked and told. Part of programs of their own too, so it uses nothing of base.sh.

# Ask sshd about its configuration. Where a socket starts it, its folder may be there only while it runs (Ubuntu 24.04),
# and without it sshd answers nothing. The folder goes with an sshd that ends, which may be in this very moment.
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

# Have sshd read its configuration again. One that a socket starts, and that does not run, reads it then; one that a socket
# has started ends by a reload ("Cannot bind any address"), some time after it was told, so it is started anew. Sessions go
# on through a restart.
reload_sshd() {
    systemctl -q is-active ssh || return 0
    if systemctl -q is-active ssh.socket; then
        systemctl restart ssh
    else
        systemctl reload ssh || systemctl restart ssh
    fi
}

# The same, where it is one with which sshd starts.
reload_sound_sshd() {
    ask_sshd -t
    reload_sshd
}

sshd_port() {
    { ask_sshd -T || echo "sshd does not say its port: taken for 22" >&2; } |
        awk '$1 == "port" && !port {port = $2} END {print port ? port : 22}'
}

sshd_came_with_us() { grep -qsx openssh-server /var/lib/tailrack/packages; }
