#!/bin/bash
# uses: ssh_trust/authority ssh_trust/members ssh_trust/trust
# Replace the SSH authority while users work (docs/decisions/0018): first all machines trust both, then all present certificates of
# the next one, then all stop trusting the last one. Each stage begins when all members have completed the one before, so no
# machine ever refuses another. Files record the progress.
#
# Callers define CERTIFICATES_FOLDER, on the share, and show_own_certificate (services.sh).

# The generation that the change leads to; exists during a change.
TURNING=$STATE_DIR/ssh_authority.turning
# Seconds to wait for late members in this run: one that joins again has another address.
TURN_PATIENCE=180

turn_to() {
    TURN_GENERATION=$1
    # Earlier versions never replaced the authority.
    [ -e "$AUTHORITY_GENERATION" ] || ensure_file "$AUTHORITY_GENERATION" 0644 root:root 1
    [ -s "$AUTHORITY_GENERATION" ] || ensure_file "$AUTHORITY_GENERATION" 0644 root:root "$TURN_GENERATION"
    if [ ! -e "$TURNING" ] && [ "$(cat "$AUTHORITY_GENERATION")" = "$TURN_GENERATION" ]; then return 0; fi
    TURN_FOLDER=$(mktemp -d "$PRIVATE_DIR/authority.XXXXXX")
    AT_END+=(forget_turn)
    turn_authority || LATER+=(name_who_missed_it)
}

forget_turn() { rm -rf "$TURN_FOLDER"; }

# Continue the change as far as members have completed each stage; succeed when it is finished. Called where errexit is off.
turn_authority() {
    TURN_LATE=''
    if [ ! -e "$TURNING" ]; then
        [ "$(cat "$AUTHORITY_GENERATION")" != "$TURN_GENERATION" ] || return 0
        make_next "$LEAVE_KEY" && make_next "$AUTHORITY_KEY" && ensure_file "$TURNING" 0644 root:root "$TURN_GENERATION" || return 1
    fi
    all_trust || return 1
    if [ -e "$AUTHORITY_KEY.next.pub" ]; then
        let_next_sign || return 1
        note "all machines trust the next authority: it signs from now on"
    fi
    if [ -e "$AUTHORITY_KEY.last.pub" ]; then
        all_show || return 1
        rm -f "$AUTHORITY_KEY.last.pub" && all_trust || return 1
    fi
    # The config may have changed again meanwhile.
    mv -fT "$TURNING" "$AUTHORITY_GENERATION" && turn_authority
}

# The public key is moved last, here and below: if it exists, the private one does too.
make_next() {
    local fresh=$1.fresh
    [ ! -e "$1.next.pub" ] || return 0
    rm -f "$1.next" "$fresh" "$fresh.pub"
    ssh-keygen -q -t ed25519 -N '' -C "tailrack $(basename "$1")" -f "$fresh" &&
        mv -fT "$fresh" "$1.next" && mv -fT "$fresh.pub" "$1.next.pub" && note "created $1.next"
}

# Replace the private keys: from here on the last ones can neither sign nor ask a node to leave. All members accept the next leave
# key already.
let_next_sign() (
    exec 8>"$PRIVATE_DIR/sign.lock"
    flock -w 60 8 || exit 1
    [ ! -e "$LEAVE_KEY.next" ] || mv -fT "$LEAVE_KEY.next" "$LEAVE_KEY" || exit 1
    [ ! -e "$LEAVE_KEY.next.pub" ] || mv -fT "$LEAVE_KEY.next.pub" "$LEAVE_KEY.pub" || exit 1
    if [ -e "$AUTHORITY_KEY.next" ]; then
        ensure_file "$AUTHORITY_KEY.last.pub" 0644 root:root "$(public_key "$AUTHORITY_KEY")"
        mv -fT "$AUTHORITY_KEY.next" "$AUTHORITY_KEY" || exit 1
    fi
    mv -fT "$AUTHORITY_KEY.next.pub" "$AUTHORITY_KEY.pub"
)

# The head node comes first: machines that join from here on get the same list from their steps.
all_trust() {
    keep_authorities
    trust_authorities "$(cat "$AUTHORITY_TRUSTED")" || return 1
    all_agree trust "$AUTHORITY_TRUSTED" authority
}

# A second request that trusts only the next authority proves that a node's sshd presents the certificate.
all_show() {
    local certificate="$STATE_DIR/members/{}/key-cert.pub" known_hosts=$TURN_FOLDER/known
    show_own_certificate || return 1
    /usr/local/sbin/tailrack-sign publish "$CERTIFICATES_FOLDER" || note "not all certificates could be signed"
    all_agree take "$certificate" certificate || return 1
    printf '@cert-authority * %s\n' "$(public_key "$AUTHORITY_KEY")" >"$known_hosts"
    TAILRACK_KNOWN_HOSTS=$known_hosts all_agree show "$certificate" certificate
}

# Send a request to the members that have not completed a stage, and record those that fail. Words: the stage, a file for their
# stdin, the request.
all_agree() {
    local folder node
    folder=$TURN_FOLDER/$(authorities_number)-$1
    mkdir -p "$folder"
    members_but_here | while read -r node; do [ -e "$folder/$node.yes" ] || echo "$node"; done |
        ask_members "$folder" "${@:2}"
    for node in $(members_but_here); do
        [ ! -e "$folder/$node.yes" ] || continue
        note "$node does not $1: $(tail -n 1 "$folder/$node.why" 2>/dev/null)"
        TURN_LATE+="${TURN_LATE:+ }$node"
    done
    [ -z "$TURN_LATE" ]
}

name_who_missed_it() {
    wait_until "$TURN_PATIENCE" turn_authority || fail \
        "the SSH authority is being changed, and ${TURN_LATE:-the head node} did not take part yet: until then all machines also trust the last one" \
        "make it answer (tailrack-ask NODE last-failure), or remove it from the config; then run up again, which continues"
}
