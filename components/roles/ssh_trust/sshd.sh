#!/bin/bash
# sshd, asked and told. Part of programs of their own too, so it uses nothing of base.sh.

# Ask sshd about its configuration. Where a socket starts it, its folder may be there only while it runs (Ubuntu 24.04),
# and without it sshd answers nothing.
ask_sshd() {
    install -d -m 0755 /run/sshd
    sshd "$@"
}

# Have sshd read its configuration again. One that a socket starts, and that does not run, reads it then; one that a socket
# has started ends by a reload ("Cannot bind any address"). Sessions go on through a restart.
reload_sshd() {
    systemctl -q is-active ssh || return 0
    systemctl reload ssh || systemctl restart ssh
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
