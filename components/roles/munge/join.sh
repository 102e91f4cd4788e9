#!/bin/bash
# uses: machine/keep_running munge/own
# The cluster's munge key: what a machine needs before any other can trust it.
#
# MUNGE_KEY   secret, text

# In a cluster at work the key waits for the moment at which all machines change to it (services.sh): on the head node, and
# on a node to which slurmctld answers by the key that it has. One that it refuses has missed that moment.
key_waits() {
    systemctl -q is-active munge || return 1
    if [ -d "$STATE_DIR/slurm/base" ]; then systemctl -q is-active slurmctld; return; fi
    [ -x /usr/local/lib/tailrack/answers/munge-switch ] && timeout 15 sinfo -h -o %N >/dev/null 2>&1
}

munge_join() {
    local digest
    CHANGED=
    take_munge_folder
    if munge_key_of_others; then set_aside "$MUNGE_FILE"; fi
    digest=$(munge_digest <<<"$MUNGE_KEY")
    # Before the key is there, so that a step that is cut off leaves no key of which nobody knows whose it is.
    if ! grep -qsxF "$digest" "$MUNGE_DIGESTS"; then
        ensure_file "$MUNGE_DIGESTS" 0600 root:root "$(cat "$MUNGE_DIGESTS" - 2>/dev/null <<<"$digest" || :)"
    fi
    if [ -e "$MUNGE_FILE" ] && [ "$(munge_digest <"$MUNGE_FILE")" != "$digest" ] && key_waits; then
        [ ! -d "$STATE_DIR/slurm/base" ] || ensure_file "$MUNGE_NEXT" 0400 root:root "$MUNGE_KEY"
        note "the next key waits for all machines to change to it at once"
        return
    fi
    rm -f "$MUNGE_NEXT"
    # The package would make a key of its own where there is none.
    id -u munge >/dev/null 2>&1 || ensure_file "$MUNGE_FILE" 0400 root:root "$MUNGE_KEY"
    # From here on all others may come too: one transaction for all.
    ensure_packages munge "${AHEAD[@]}"
    # The package has given it away.
    take_munge_folder
    ensure_file "$MUNGE_FILE" 0400 munge:munge "$MUNGE_KEY"
    keep_running munge.service
    enable_units munge.service
    if [ -n "$CHANGED" ] || ! systemctl -q is-active munge; then
        systemctl restart munge || fail "munged does not start$(munged_said)" "$(munge_remedy)"
    fi
    munge -n | unmunge >/dev/null || fail "munge cannot read its own credential$(munged_said)" "$(munge_remedy)"
}

# Its own last sentence, which says what it does not like: mostly who may write into a folder above its files.
munged_said() {
    local said
    said=$( (journalctl -u munge -n 20 -o cat --no-pager 2>/dev/null; as_user munge 10 65536 tail -n 20 /var/log/munge/munged.log </dev/null 2>/dev/null) |
        grep -E 'munged(\[[0-9]+\])?: Error|^[0-9: -]+(Error|Warning):' | tail -n 1 | tr -cd '[:print:]' | cut -c 1-300) || :
    printf '%s' "${said:+ ($said)}"
}

munge_remedy() {
    case $(munged_said) in
    *writable*|*insecure*) printf "%s" "take that right away on $HOST_NAME ('chmod go-w' of the folder that it names; '/' has to be 0755 and root's), then run up again" ;;
    *) printf "%s" "see 'journalctl -u munge' on $HOST_NAME" ;;
    esac
}
