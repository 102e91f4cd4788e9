#!/bin/bash
# uses: machine/retire
# Remove the cluster's rules after its daemons, and let the kernel assign its ports again.

firewall_leave() {
    retire tailrack-firewall.service
    rm -f /etc/tailrack/firewall.nft /etc/tailrack/ports /etc/tailrack/ports.nft /usr/local/lib/tailrack/hold-ports
    [ -e /etc/sysctl.d/90-tailrack.conf ] || return 0
    cat /var/lib/tailrack/reserved-ports >/proc/sys/net/ipv4/ip_local_reserved_ports
    rm -f /etc/sysctl.d/90-tailrack.conf
}
