#!/bin/bash
# uses: ssh_trust/trust
# Trust the cluster's authority, present a certificate, and accept the head node's requests.
#
# HEAD_ADDRESS
# NFS_EXPORTS_MOUNT    mount point of the share, which has this machine's next certificates
# NODE_AUTHORITIES     the list for authorities.sh
# NODE_CERTIFICATE     for this machine's SSH host key
# NODE_LEAVE_PLAN, NODE_LEAVE_VALUES   plan and values of the leave program, as JSON
# SSH_TRUST_LEAVE_COMMAND              text of the leave program

LEAVE_PROGRAM=/usr/local/sbin/tailrack-leave

ssh_trust_node() {
    let_the_head_ask
    show_certificate "$NODE_CERTIFICATE"
    ensure_timer tailrack-certificate \
        "/usr/local/sbin/tailrack-certificate $NFS_EXPORTS_MOUNT/.tailrack/certificates/$HOST_NAME"
}

# The keys are in a separate file and are the only way for the head node's address to become root: one key for leaving, and
# certificates for tailrack-ask. They are separate because a node of an earlier version leaves on any use of its key.
let_the_head_ask() {
    ensure_files /etc/tailrack/plans/leave.json 0644 root:root "$NODE_LEAVE_PLAN"$'\n'"$NODE_LEAVE_VALUES" \
        "$LEAVE_PROGRAM" 0755 root:root "$SSH_TRUST_LEAVE_COMMAND"
    trust_authorities "$NODE_AUTHORITIES"
    alone_with_authorities let_authorities_ask "$HEAD_ADDRESS"
    # These commands must work even where root may not log in.
    CHANGED=
    ensure_file /etc/ssh/sshd_config.d/tailrack-leave.conf 0644 root:root \
        "# Written by tailrack: the head node may run tailrack-leave and tailrack-answer, and nothing else as root.
Match User root Address $HEAD_ADDRESS
    PermitRootLogin forced-commands-only
    PubkeyAuthentication yes
    AuthenticationMethods publickey
    AuthorizedKeysFile $LEAVE_KEY_FILE
    AllowUsers root
    AllowGroups *
    DenyUsers nobody
    DenyGroups nobody"
    if [ -n "$CHANGED" ]; then reload_sound_sshd; fi
    require_heard
    # An earlier version stored it here.
    [ ! -e /root/.ssh/authorized_keys ] || sed -i '/ tailrack-leave$/d' /root/.ssh/authorized_keys
}

# sshd uses the first value of a key, and a file of the machine's owner may come before ours.
require_heard() {
    local settings key wrong=''
    settings=$(ask_sshd -T -C "user=root,host=$HEAD_ADDRESS,addr=$HEAD_ADDRESS")
    for key in 'pubkeyauthentication yes' 'authenticationmethods publickey' "authorizedkeysfile $LEAVE_KEY_FILE" 'allowusers root'; do
        has_line "$key" "$settings" || wrong+=", $(grep "^${key%% *} " <<<"$settings" || echo "no ${key%% *}")"
    done
    ! has_line 'permitrootlogin no' "$settings" || wrong+=', permitrootlogin no'
    [ -z "$wrong" ] || fail "sshd on $HOST_NAME would reject the head node's request to leave: for root from \
$HEAD_ADDRESS it uses ${wrong#, }" "find the lines with 'grep -rn -i match /etc/ssh/sshd_config /etc/ssh/sshd_config.d' \
on $HOST_NAME and exclude root from that address; then run up again"
}
