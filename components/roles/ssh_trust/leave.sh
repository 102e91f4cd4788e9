#!/bin/bash
# Trust ends both ways: the cluster's authority, this machine's certificate, the head node's way in.

ssh_trust_leave() {
    # Where an earlier version had the head node's key.
    [ ! -e /root/.ssh/authorized_keys ] || sed -i '/ tailrack-leave$/d' /root/.ssh/authorized_keys
    local name
    for name in tailrack-sign tailrack-certificate; do
        [ ! -e "/etc/systemd/system/$name.timer" ] || systemctl disable -q --now "$name.timer"
        rm -f "/etc/systemd/system/$name.timer" "/etc/systemd/system/$name.service" "/usr/local/sbin/$name"
    done
    rm -f /etc/ssh/tailrack_authority.pub /etc/ssh/ssh_config.d/tailrack.conf /usr/local/sbin/tailrack-known-hosts \
        /etc/ssh/ssh_host_ed25519_key-cert.pub /etc/ssh/sshd_config.d/tailrack.conf \
        /etc/ssh/sshd_config.d/tailrack-leave.conf /etc/ssh/tailrack_leave_key
    systemctl reload ssh
}
