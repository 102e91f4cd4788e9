#!/bin/bash
# uses: ssh_trust/authority ssh_trust/trust ssh_trust/turn
# Present a certificate on the head node too, for users who log in from a node; renew all certificates before they expire.
#
# HEAD_ADDRESS           its tailnet address
# NFS_EXPORTS_PATH       the share, from which machines fetch their next certificate
# SSH_TRUST_GENERATION   text of the config; a change replaces the authority

ssh_trust_services() {
    CERTIFICATES_FOLDER=$NFS_EXPORTS_PATH/.tailrack/certificates
    show_own_certificate
    ensure_timer tailrack-sign "/usr/local/sbin/tailrack-sign publish $CERTIFICATES_FOLDER" \
        "/usr/local/sbin/tailrack-certificate $STATE_DIR/members/$HOST_NAME/key-cert.pub"
    note "SSH authority of generation '$SSH_TRUST_GENERATION'"
    turn_to "$SSH_TRUST_GENERATION"
}

show_own_certificate() { show_certificate "$(certificate_for "$HOST_NAME" "$HOST_NAME,$HEAD_ADDRESS" "$(host_key)")"; }
