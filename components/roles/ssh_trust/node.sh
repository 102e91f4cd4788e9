#!/bin/bash
# uses: ssh_trust/trust
# A node trusts the cluster's authority, shows its own certificate, lets the head node ask it to leave, and answers it.
#
# HEAD_ADDRESS
# NFS_EXPORTS_MOUNT    where the share is, with this machine's next certificates
# NODE_AUTHORITIES     as authorities.sh has them
# NODE_CERTIFICATE     for this machine's SSH host key
# NODE_LEAVE_PROGRAM   text of the program that the head node may run here, and nothing else; NODE_LEAVE_VALUES before it

LEAVE_PROGRAM=/usr/local/sbin/tailrack-leave

ssh_trust_node() {
    let_the_head_ask
    show_certificate "$NODE_CERTIFICATE"
    ensure_timer tailrack-certificate \
        "/usr/local/sbin/tailrack-certificate $NFS_EXPORTS_MOUNT/.tailrack/certificates/$HOST_NAME"
}

# The keys lie in a file that is ours and holds nothing else, and are all that opens root to the head node's address: one to
# leave, and what an authority signs for tailrack-ask. Two, since an earlier version leaves whatever its key is used for.
let_the_head_ask() {
    ensure_file "$LEAVE_PROGRAM" 0755 root:root $'#!/bin/bash\n'"$NODE_LEAVE_VALUES"$'\n'"$NODE_LEAVE_PROGRAM"
    trust_authorities "$NODE_AUTHORITIES"
    alone_with_authorities let_authorities_ask "$HEAD_ADDRESS"
    # Where root may not log in at all, or otherwise, this one command still must be heard.
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
    # Where an earlier version had it.
    [ ! -e /root/.ssh/authorized_keys ] || sed -i '/ tailrack-leave$/d' /root/.ssh/authorized_keys
}

# Of a key of sshd's the first value holds, and a file of the machine's owner may come before ours.
require_heard() {
    local said key wrong=''
    said=$(ask_sshd -T -C "user=root,host=$HEAD_ADDRESS,addr=$HEAD_ADDRESS")
    for key in 'pubkeyauthentication yes' 'authenticationmethods publickey' "authorizedkeysfile $LEAVE_KEY_FILE" 'allowusers root'; do
        has_line "$key" "$said" || wrong+=", $(grep "^${key%% *} " <<<"$said" || echo "no ${key%% *}")"
    done
    ! has_line 'permitrootlogin no' "$said" || wrong+=', permitrootlogin no'
    [ -z "$wrong" ] || fail "sshd here would not hear the head node when it asks $HOST_NAME to leave: for root from \
$HEAD_ADDRESS it has ${wrong#, }" "find what says so with 'grep -rn -i match /etc/ssh/sshd_config /etc/ssh/sshd_config.d' \
on $HOST_NAME, and let it not hold for root from that address; then run up again"
}
