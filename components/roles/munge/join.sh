#!/bin/bash
# uses: munge/own
# The cluster's munge key: what a machine needs before any other can trust it.
#
# MUNGE_KEY   secret, text

munge_join() {
    local digest
    CHANGED=
    if munge_key_of_others; then set_aside "$MUNGE_FILE"; fi
    digest=$(munge_digest <<<"$MUNGE_KEY")
    # Before the key is there, so that a step that is cut off leaves no key of which nobody knows whose it is.
    if ! grep -qsxF "$digest" "$MUNGE_DIGESTS"; then
        ensure_file "$MUNGE_DIGESTS" 0600 root:root "$(cat "$MUNGE_DIGESTS" - 2>/dev/null <<<"$digest" || :)"
    fi
    # The package would make a key of its own where there is none.
    install -d -m 0700 /etc/munge
    id -u munge >/dev/null 2>&1 || ensure_file "$MUNGE_FILE" 0400 root:root "$MUNGE_KEY"
    ensure_packages munge
    ensure_file "$MUNGE_FILE" 0400 munge:munge "$MUNGE_KEY"
    chown munge:munge /etc/munge
    chmod 0700 /etc/munge
    systemctl enable -q munge
    if [ -n "$CHANGED" ] || ! systemctl -q is-active munge; then systemctl restart munge; fi
    munge -n | unmunge >/dev/null || fail "munge cannot read its own credential" "see 'journalctl -u munge' on $HOST_NAME"
}
