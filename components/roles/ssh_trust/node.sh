#!/bin/bash
# uses: ssh_trust/trust
# A node trusts the cluster's authority, shows its own certificate, and lets the head node ask it to leave.
#
# HEAD_ADDRESS, HEAD_AUTHORITY, HEAD_LEAVE_KEY
# NFS_EXPORTS_MOUNT    where the share is, with this machine's next certificates
# NODE_CERTIFICATE     for this machine's SSH host key
# NODE_LEAVE_PROGRAM   text of the program that the head node may run here, and nothing else; NODE_LEAVE_VALUES before it

LEAVE_PROGRAM=/usr/local/sbin/tailrack-leave

ssh_trust_node() {
    let_the_head_ask
    trust_authority "$HEAD_AUTHORITY"
    show_certificate "$NODE_CERTIFICATE"
    ensure_timer tailrack-certificate \
        "/usr/local/sbin/tailrack-certificate $NFS_EXPORTS_MOUNT/.tailrack/certificates/$HOST_NAME"
}

let_the_head_ask() {
    local authorized=/root/.ssh/authorized_keys line
    ensure_file "$LEAVE_PROGRAM" 0755 root:root $'#!/bin/bash\n'"$NODE_LEAVE_VALUES"$'\n'"$NODE_LEAVE_PROGRAM"
    line="restrict,from=\"$HEAD_ADDRESS\",command=\"$LEAVE_PROGRAM\" $HEAD_LEAVE_KEY tailrack-leave"
    install -d -m 0700 /root/.ssh
    touch "$authorized"
    chmod 0600 "$authorized"
    if ! grep -qxF "$line" "$authorized"; then
        sed -i '/ tailrack-leave$/d' "$authorized"
        printf '%s\n' "$line" >>"$authorized"
    fi
    # Where root may not log in at all, this one command still must be heard.
    CHANGED=
    ensure_file /etc/ssh/sshd_config.d/tailrack-leave.conf 0644 root:root \
        "# Written by tailrack: the head node may run tailrack-leave.
Match User root Address $HEAD_ADDRESS
    PermitRootLogin forced-commands-only"
    if [ -n "$CHANGED" ]; then
        sshd -t
        systemctl reload ssh
    fi
}
