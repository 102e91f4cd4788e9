#!/bin/bash
# uses: ssh_trust/trust
# A node trusts the cluster's authority, shows its own certificate, and lets the head node ask it to leave.
#
# HEAD_ADDRESS, HEAD_AUTHORITY, HEAD_LEAVE_KEY
# NFS_EXPORTS_MOUNT    where the share is, with this machine's next certificates
# NODE_CERTIFICATE     for this machine's SSH host key
# NODE_LEAVE_PROGRAM   text of the program that the head node may run here, and nothing else; NODE_LEAVE_VALUES before it

LEAVE_PROGRAM=/usr/local/sbin/tailrack-leave
LEAVE_KEY_FILE=/etc/ssh/tailrack_leave_key

ssh_trust_node() {
    let_the_head_ask
    trust_authority "$HEAD_AUTHORITY"
    show_certificate "$NODE_CERTIFICATE"
    ensure_timer tailrack-certificate \
        "/usr/local/sbin/tailrack-certificate $NFS_EXPORTS_MOUNT/.tailrack/certificates/$HOST_NAME"
}

# The key lies in a file that is ours and holds nothing else, and is all that opens root to the head node's address.
let_the_head_ask() {
    one_key "$HEAD_LEAVE_KEY" || fail "what the head node gives as its key for tailrack-leave is no key" \
        "look at the head node itself: something there answers in the place of tailrack's steps"
    ensure_file "$LEAVE_PROGRAM" 0755 root:root $'#!/bin/bash\n'"$NODE_LEAVE_VALUES"$'\n'"$NODE_LEAVE_PROGRAM"
    ensure_file "$LEAVE_KEY_FILE" 0644 root:root \
        "restrict,from=\"$HEAD_ADDRESS\",command=\"$LEAVE_PROGRAM\" $HEAD_LEAVE_KEY tailrack-leave"
    # Where root may not log in at all, this one command still must be heard.
    CHANGED=
    ensure_file /etc/ssh/sshd_config.d/tailrack-leave.conf 0644 root:root \
        "# Written by tailrack: the head node may run tailrack-leave, and nothing else as root.
Match User root Address $HEAD_ADDRESS
    PermitRootLogin forced-commands-only
    AuthorizedKeysFile $LEAVE_KEY_FILE"
    if [ -n "$CHANGED" ]; then
        sshd -t
        systemctl reload ssh
    fi
    # Where an earlier version had it.
    [ ! -e /root/.ssh/authorized_keys ] || sed -i '/ tailrack-leave$/d' /root/.ssh/authorized_keys
}
