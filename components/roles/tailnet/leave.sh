#!/bin/bash
# Log out of the tailnet. As soon as this program has ended, by systemd: it cuts the very connection over which the head
# node asked for it. Over is leaving when the machine is gone from the tailnet; the head node waits for that, and so does
# a join. What was adopted stays in its tailnet.
#
# NODE_ADOPT   true where the machine was in the tailnet before

tailnet_leave() {
    # What a join that was killed has left.
    rm -f /run/tailrack-key.*
    if [ "$NODE_ADOPT" = true ]; then
        systemctl disable -q --now tailrack-tailnet.service
        return
    fi
    systemctl disable -q tailrack-tailnet.service
    # The second after the end is for the last words of an SSH session. The machine counts as the cluster's to the last.
    systemd-run -q --collect --unit=tailrack-logout /bin/sh -c \
        "timeout 20 tail --pid=$$ -s 0.1 -f /dev/null; sleep 1; timeout 60 tailscale logout; systemctl disable --now tailscaled; rm -f /var/lib/tailscale/tailscaled.state /var/lib/tailrack/tailnet"
}
