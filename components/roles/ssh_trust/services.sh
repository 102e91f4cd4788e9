#!/bin/bash
# uses: ssh_trust/authority ssh_trust/trust
# The head node shows a certificate as well, to users who log in to it from a node; and signs everybody's again before
# they end.
#
# HEAD_ADDRESS       its tailnet address
# NFS_EXPORTS_PATH   the share, on which machines find their next certificate

ssh_trust_services() {
    show_certificate "$(certificate_for "$HOST_NAME" "$HOST_NAME,$HEAD_ADDRESS" "$(host_key)")"
    ensure_timer tailrack-sign "/usr/local/sbin/tailrack-sign publish $NFS_EXPORTS_PATH/.tailrack/certificates" \
        "/usr/local/sbin/tailrack-certificate $STATE_DIR/members/$HOST_NAME/key-cert.pub"
}
