#!/bin/bash
# SSH between nodes with known host keys and no list of them: the head node is a certificate authority, every node
# shows a certificate from it, and everybody trusts the authority.

trust_authority() {
    local authority=$1
    ensure_file /etc/ssh/ssh_known_hosts.d-tailrack 0644 root:root "@cert-authority * $authority"
    ensure_file /etc/ssh/ssh_config.d/tailrack.conf 0644 root:root \
        "# Written by tailrack: nodes of the cluster show a certificate of this authority.
GlobalKnownHostsFile /etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts.d-tailrack"
}

# Show the certificate made for this machine's host key.
show_certificate() {
    CHANGED=
    ensure_file /etc/ssh/ssh_host_ed25519_key-cert.pub 0644 root:root "$1"
    ensure_file /etc/ssh/sshd_config.d/tailrack.conf 0644 root:root \
        "HostCertificate /etc/ssh/ssh_host_ed25519_key-cert.pub"
    if [ -n "$CHANGED" ]; then
        sshd -t
        systemctl reload ssh
    fi
}
