#!/bin/bash
# The cluster's rules go last, after its daemons.

firewall_leave() {
    if [ -e /etc/systemd/system/tailrack-firewall.service ]; then
        systemctl disable -q --now tailrack-firewall.service
        rm -f /etc/systemd/system/tailrack-firewall.service /etc/tailrack/firewall.nft
    fi
}
