#!/bin/bash
# uses: ssh_trust/authorities ssh_trust/sshd
# Known SSH host keys without a list of keys: the head node is a certificate authority, every node presents a certificate from it,
# and all machines trust the authority.

HOST_KEY_FILE=/etc/ssh/ssh_host_ed25519_key

# Print this machine's public SSH host key.
host_key() { cut -d' ' -f1,2 "$HOST_KEY_FILE.pub"; }

trust_authorities() {
    sound_authorities "$1" || fail "the head node's list of SSH authorities is not a list of keys" \
        "inspect the head node: another program there answers instead of tailrack's steps"
    alone_with_authorities take_authorities "$1"
    # An earlier version wrote this file, in which the authority vouched for every host.
    rm -f /etc/ssh/ssh_known_hosts.d-tailrack
}

# Present the certificate of this machine's host key. A step may bring one that was signed long ago.
show_certificate() {
    local file=/etc/ssh/sshd_config.d/tailrack.conf
    ensure_file "$STATE_DIR/certificate" 0644 root:root "$1"
    CHANGED=
    ensure_file "$file" 0644 root:root "HostCertificate $HOST_KEY_FILE-cert.pub"
    /usr/local/sbin/tailrack-certificate "$STATE_DIR/certificate"
    # If that program installed a newer one, sshd has read this file too.
    if [ -n "$CHANGED" ] && [ ! "$HOST_KEY_FILE-cert.pub" -nt "$file" ]; then reload_sound_sshd; fi
}

# Make an existing timer ($1) run commands.
ensure_timer() {
    ensure_file "/etc/systemd/system/$1.service" 0644 root:root "[Unit]
Description=Certificates of SSH host keys

[Service]
Type=oneshot
$(printf 'ExecStart=%s\n' "${@:2}")"
    reload_units "$1.timer" "$1.service"
    enable_units --now "$1.timer"
}
