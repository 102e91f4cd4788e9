#!/bin/bash
# uses: ssh_trust/authorities ssh_trust/sshd
# SSH between nodes with known host keys and no list of them: the head node is a certificate authority, every node
# shows a certificate from it, and everybody trusts the authority.

HOST_KEY_FILE=/etc/ssh/ssh_host_ed25519_key

# The key by which this machine is known to whoever logs in.
host_key() { cut -d' ' -f1,2 "$HOST_KEY_FILE.pub"; }

trust_authorities() {
    sound_authorities "$1" || fail "what the head node gives as its authorities is no list of keys" \
        "look at the head node itself: something there answers in the place of tailrack's steps"
    alone_with_authorities take_authorities "$1"
    # What an earlier version wrote: it let the authority vouch for every host there is.
    rm -f /etc/ssh/ssh_known_hosts.d-tailrack
}

# Show the certificate made for this machine's host key. A step may bring one that was signed long ago.
show_certificate() {
    local file=/etc/ssh/sshd_config.d/tailrack.conf
    ensure_file "$STATE_DIR/certificate" 0644 root:root "$1"
    CHANGED=
    ensure_file "$file" 0644 root:root "HostCertificate $HOST_KEY_FILE-cert.pub"
    /usr/local/sbin/tailrack-certificate "$STATE_DIR/certificate"
    # Where that program has shown another one since, sshd has read this file too.
    if [ -n "$CHANGED" ] && [ ! "$HOST_KEY_FILE-cert.pub" -nt "$file" ]; then reload_sound_sshd; fi
}

# Have a timer, which is there, run commands.
ensure_timer() {
    ensure_file "/etc/systemd/system/$1.service" 0644 root:root "[Unit]
Description=Certificates of SSH host keys

[Service]
Type=oneshot
$(printf 'ExecStart=%s\n' "${@:2}")"
    reload_units "$1.timer" "$1.service"
    enable_units --now "$1.timer"
}
