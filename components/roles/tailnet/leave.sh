#!/bin/bash
# Log out of the tailnet. A moment later, by systemd: it ends the very connection over which the head node asked for it.

tailnet_leave() {
    systemctl disable -q tailrack-tailnet.service
    systemd-run -q --on-active=2s --unit=tailrack-logout-$RANDOM /bin/sh -c \
        'tailscale logout; systemctl disable --now tailscaled; rm -f /var/lib/tailscale/tailscaled.state'
}
