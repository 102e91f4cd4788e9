#!/bin/bash
# uses: sll/remove
# Install the command `sll` and its reader, which a socket starts when somebody watches.
#
# SLL_PROGRAM   text of the command
# SLL_READER    text of the reader
# SLL_SHARED    false if users may see different jobs (PrivateData)
# SLL_SOCKET, SLL_SERVICE   the reader's units

sll_services() {
    ensure_file /usr/local/bin/sll 0755 root:root "$SLL_PROGRAM"
    if [ "$SLL_SHARED" != true ]; then
        remove_reader
        return
    fi
    CHANGED=
    ensure_file /usr/local/lib/tailrack/live-reader 0755 root:root "$SLL_READER"
    ensure_file /etc/systemd/system/tailrack-live.service 0644 root:root "$SLL_SERVICE"
    ensure_file /etc/systemd/system/tailrack-live.socket 0644 root:root "$SLL_SOCKET"
    reload_units tailrack-live.socket tailrack-live.service
    enable_units tailrack-live.socket
    # This also ends a reader of the old version; the next viewer starts the new one.
    if [ -n "$CHANGED" ] || ! systemctl -q is-active tailrack-live.socket; then
        systemctl stop tailrack-live.service tailrack-live.socket
        systemctl start tailrack-live.socket
    fi
}
