#!/bin/bash
# uses: machine/retire ssh_trust/sshd
# Trust ends both ways: the cluster's authority, this machine's certificate, the head node's way in.

ssh_trust_leave() {
    # Where an earlier version had the head node's key.
    [ ! -e /root/.ssh/authorized_keys ] || sed -i '/ tailrack-leave$/d' /root/.ssh/authorized_keys
    # Where the cluster has made the file, nothing else is in it.
    [ -s /root/.ssh/authorized_keys ] || rm -f /root/.ssh/authorized_keys
    retire tailrack-{sign,certificate}.{timer,service}
    rm -f /usr/local/sbin/tailrack-{sign,certificate}
    rm -f /etc/ssh/tailrack_authority.pub /etc/ssh/ssh_config.d/tailrack.conf /usr/local/sbin/tailrack-known-hosts \
        /etc/ssh/ssh_host_ed25519_key-cert.pub /etc/ssh/sshd_config.d/tailrack.conf \
        /etc/ssh/sshd_config.d/tailrack-leave.conf /etc/ssh/tailrack_leave_key
    if [ -e /etc/ssh/sshd_config.d/00-tailrack.conf ]; then
        # Sessions go on without it, the head node's among them.
        systemctl disable -q --now ssh.socket ssh.service
        rm -f /etc/ssh/sshd_config.d/00-tailrack.conf
    fi
    reload_sshd
}
