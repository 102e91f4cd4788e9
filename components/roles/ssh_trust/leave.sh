#!/bin/bash
# uses: machine/retire ssh_trust/sshd
# Remove the cluster's authority, this machine's certificate and the head node's access.

ssh_trust_leave() {
    # An earlier version stored the head node's key here.
    [ ! -e /root/.ssh/authorized_keys ] || sed -i '/ tailrack-leave$/d' /root/.ssh/authorized_keys
    # The file is empty if the cluster created it.
    [ -s /root/.ssh/authorized_keys ] || rm -f /root/.ssh/authorized_keys
    retire tailrack-{sign,certificate}.{timer,service}
    rm -f /usr/local/sbin/tailrack-{sign,certificate}
    rm -f /etc/ssh/tailrack_authority.pub /etc/ssh/ssh_config.d/tailrack.conf /usr/local/sbin/tailrack-known-hosts \
        /etc/ssh/ssh_host_ed25519_key-cert.pub /etc/ssh/sshd_config.d/tailrack.conf \
        /etc/ssh/sshd_config.d/tailrack-leave.conf /etc/ssh/tailrack_leave_key
    if [ -e /etc/ssh/sshd_config.d/00-tailrack.conf ]; then
        # Open sessions continue, including the head node's.
        systemctl disable -q --now ssh.socket ssh.service
        rm -f /etc/ssh/sshd_config.d/00-tailrack.conf
    fi
    reload_sshd
}
