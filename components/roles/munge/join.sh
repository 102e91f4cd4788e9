#!/bin/bash
# uses: machine/keep_running munge/cluster_keys
# Install the cluster's munge key, which a machine needs before any other can trust it.
#
# MUNGE_KEY   secret, text

# Succeed if the key must wait until all machines switch to it at once (services.sh): on the head node of a running
# cluster, and on a node whose present key slurmctld accepts. A node that slurmctld rejects has missed the switch.
key_must_wait() {
    systemctl -q is-active munge || return 1
    if [ -d "$STATE_DIR/slurm/base" ]; then systemctl -q is-active slurmctld; return; fi
    [ -x /usr/local/lib/tailrack/answers/munge-switch ] && timeout 15 sinfo -h -o %N >/dev/null 2>&1
}

munge_join() {
    local digest
    CHANGED=
    take_munge_folder
    if foreign_munge_key; then set_aside "$MUNGE_FILE"; fi
    digest=$(munge_digest <<<"$MUNGE_KEY")
    # Note the digest before writing the key, so that an interrupted step leaves no key of unknown origin.
    if ! grep -qsxF "$digest" "$MUNGE_DIGESTS"; then
        ensure_file "$MUNGE_DIGESTS" 0600 root:root "$(cat "$MUNGE_DIGESTS" - 2>/dev/null <<<"$digest" || :)"
    fi
    if [ -e "$MUNGE_FILE" ] && [ "$(munge_digest <"$MUNGE_FILE")" != "$digest" ] && key_must_wait; then
        [ ! -d "$STATE_DIR/slurm/base" ] || ensure_file "$MUNGE_NEXT" 0400 root:root "$MUNGE_KEY"
        note "the next key waits until all machines switch to it at once"
        return
    fi
    rm -f "$MUNGE_NEXT"
    # Without a key the package would create one.
    id -u munge >/dev/null 2>&1 || ensure_file "$MUNGE_FILE" 0400 root:root "$MUNGE_KEY"
    # From now on, install everything else in the same transaction.
    ensure_packages munge "${AHEAD[@]}"
    # The package has changed the folder's owner.
    take_munge_folder
    ensure_file "$MUNGE_FILE" 0400 munge:munge "$MUNGE_KEY"
    keep_running munge.service
    enable_units munge.service
    if [ -n "$CHANGED" ] || ! systemctl -q is-active munge; then
        systemctl restart munge || fail "munged does not start$(munged_error)" "$(munge_remedy)"
    fi
    munge -n | unmunge >/dev/null || fail "munge cannot read its own credential$(munged_error)" "$(munge_remedy)"
}

# Print munged's last error, which is mostly about write permission on a folder above its files.
munged_error() {
    local error
    error=$( (journalctl -u munge -n 20 -o cat --no-pager 2>/dev/null; as_user munge 10 65536 tail -n 20 /var/log/munge/munged.log </dev/null 2>/dev/null) |
        grep -E 'munged(\[[0-9]+\])?: Error|^[0-9: -]+(Error|Warning):' | tail -n 1 | tr -cd '[:print:]' | cut -c 1-300) || :
    printf '%s' "${error:+ ($error)}"
}

munge_remedy() {
    case $(munged_error) in
    *writable*|*insecure*) printf "%s" "remove that permission on $HOST_NAME ('chmod go-w' on the folder in the message; '/' must be 0755 and belong to root), then run up again" ;;
    *) printf "%s" "see 'journalctl -u munge' on $HOST_NAME" ;;
    esac
}
