#!/bin/bash
# uses: sll/remove
# The command for users, and the reader behind it. It reads while somebody watches, and is started by a socket.
#
# SLL_PROGRAM   text of the command
# SLL_READER    text of the reader
# SLL_SHARED    false where each user may see other jobs
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
    # A reader of before ends too; the next who watches has it started anew.
    if [ -n "$CHANGED" ] || ! systemctl -q is-active tailrack-live.socket; then
        systemctl stop tailrack-live.service tailrack-live.socket
        systemctl start tailrack-live.socket
    fi
}
