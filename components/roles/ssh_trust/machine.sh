#!/bin/bash
# uses: ssh_trust/sshd
# An SSH server that tailrack installed accepts keys only; its package would also accept passwords. Role firewall opens it to the
# tailnet only, unless it is the way in from elsewhere.

ssh_trust_machine() {
    local unit=ssh.service
    sshd_came_with_us || return 0
    CHANGED=
    ensure_file /etc/ssh/sshd_config.d/00-tailrack.conf 0644 root:root "# Written by tailrack, which brought this SSH server.
PasswordAuthentication no
KbdInteractiveAuthentication no"
    if [ -n "$CHANGED" ]; then reload_sound_sshd; fi
    # Its package started nothing (install_unstarted). Some distributions start it by a socket.
    if systemctl -q is-enabled ssh.socket; then unit=ssh.socket; fi
    systemctl enable -q --now "$unit" || note "$unit does not start: does something else listen at port $(sshd_port)?"
}
