#!/bin/bash
# uses: tailnet/membership
# Check that the machine can join: Slurm uses only the tailnet, so the tailnet must be a kernel interface.
#
# TAILNET_TAG  tag of this machine on the tailnet
# NODE_ADOPT   true if it stays in its tailnet unchanged

tun_there() { [ -c /dev/net/tun ] && : 2>/dev/null <>/dev/net/tun; }

# List where this machine's own network uses addresses of 100.64.0.0/10: interfaces, routes and DNS servers. tailscale drops
# packets from such addresses unless they come through its own interface (util/linuxfw), so SSH or DNS would stop in the middle
# of the join. 100.100.100.100 is tailscale's own DNS server.
shared_addresses() {
    { { ip -4 -o address show && ip -4 -o route show; } || note "ip shows nothing here"
        dns_servers | sed 's/^/nameserver /'; } | awk '
        function shared(address) { return address ~ /^100[.](6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7])[.]/ }
        $1 == "nameserver" { if (shared($2) && $2 != "100.100.100.100") print "the DNS server " $2; next }
        $3 == "inet" { if ($2 != "tailscale0" && shared($4)) print $4 " at " $2; next }
        { device = ""; for (i = 2; i < NF; i++) if ($i == "dev") device = $(i + 1) }
        device == "tailscale0" { next }
        shared($1) { print "the route to " $1 " at " device; next }
        $2 == "via" && shared($3) { print "the gateway " $3 " at " device }'
}

refuse_shared_addresses() {
    local addresses
    addresses=$(shared_addresses)
    [ -z "$addresses" ] || fail "this machine's own network uses addresses of 100.64.0.0/10 (${addresses//$'\n'/, }), which belong to the tailnet: \
tailscale would cut it off from them, and with them this connection or all names" \
        "give $HOST_NAME a network and DNS servers outside 100.64.0.0/10 (DNS: /etc/systemd/resolved.conf), or leave it out"
}

tailnet_check() {
    tun_there || fail "/dev/net/tun does not work; Slurm needs the tailnet as a kernel interface" \
        "load the module tun, or give the container /dev/net/tun and NET_ADMIN"
    refuse_snap
    if tailscale_there; then
        new_enough
        let_leaving_end
    fi
    if [ "$NODE_ADOPT" = true ]; then
        require_adoptable
        return
    fi
    # An adopted machine already works with such addresses.
    refuse_shared_addresses
    if tailscale_there; then refuse_another_tailnet; fi
}
