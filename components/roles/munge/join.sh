#!/bin/bash
# The cluster's munge key: what a machine needs before any other can trust it.
#
# MUNGE_KEY   secret, text

munge_join() {
    CHANGED=
    ensure_file /etc/munge/munge.key 0400 munge:munge "$MUNGE_KEY"
    chown munge:munge /etc/munge
    chmod 0700 /etc/munge
    systemctl enable -q munge
    if [ -n "$CHANGED" ] || ! systemctl -q is-active munge; then systemctl restart munge; fi
    munge -n | unmunge >/dev/null || fail "munge cannot read its own credential" "see 'journalctl -u munge' on $HOST_NAME"
}
