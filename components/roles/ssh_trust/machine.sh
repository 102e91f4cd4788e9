#!/bin/bash
# uses: ssh_trust/sshd
# An SSH server that came with the cluster takes keys and no passwords, which its package lets in. Where nobody needs it to
# get in from elsewhere, it is closed but on the tailnet (role firewall).

ssh_trust_machine() {
    local unit=ssh.service
    sshd_came_with_us || return 0
    CHANGED=
    ensure_file /etc/ssh/sshd_config.d/00-tailrack.conf 0644 root:root "# Written by tailrack, which brought this SSH server.
PasswordAuthentication no
KbdInteractiveAuthentication no"
    if [ -n "$CHANGED" ]; then reload_sound_sshd; fi
    # Its package started nothing (install_unstarted). A distribution may have a socket for it.
    if systemctl -q is-enabled ssh.socket; then unit=ssh.socket; fi
    systemctl enable -q --now "$unit" || note "$unit does not start: does something else listen at port $(sshd_port)?"
}
