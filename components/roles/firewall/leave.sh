#!/bin/bash
# The cluster's rules go last, after its daemons.

firewall_leave() {
    if [ -e /etc/systemd/system/tailrack-firewall.service ]; then
        systemctl disable -q --now tailrack-firewall.service
        # The kernel keeps its ports to itself until the next start, which harms nobody.
        rm -f /etc/sysctl.d/90-tailrack.conf
        rm -f /etc/systemd/system/tailrack-firewall.service /etc/tailrack/firewall.nft
    fi
}
