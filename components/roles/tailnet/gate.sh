#!/bin/bash
# uses: tailnet/membership
# Slurm speaks over the tailnet alone, so the tailnet must be an interface of the kernel. And the machine is free to join.
#
# TAILNET_TAG  tag of this machine on the tailnet
# NODE_ADOPT   true where it is to stay in its tailnet as it is

tun_there() { [ -c /dev/net/tun ] && : 2>/dev/null <>/dev/net/tun; }

# Addresses of a tailnet that other interfaces have or lead to. tailscale drops what comes from such an address by any other
# interface than its own (util/linuxfw), SSH too, and in the middle of the join.
shared_addresses() {
    { { ip -4 -o address show && ip -4 -o route show default; } || note "ip shows nothing here"; } | awk '
        function shared(address) { return address ~ /^100[.](6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7])[.]/ }
        $3 == "inet" && $2 != "tailscale0" && shared($4) { print $4 " at " $2 }
        $1 == "default" && $5 != "tailscale0" && shared($3) { print "the gateway " $3 " at " $5 }'
}

refuse_shared_addresses() {
    local found
    found=$(shared_addresses)
    [ -z "$found" ] || fail "this machine's own network has addresses of 100.64.0.0/10 (${found//$'\n'/, }), which are a tailnet's: tailscale \
would cut it off from there, this connection included" \
        "have its provider give it another network, or leave $HOST_NAME out"
}

tailnet_gate() {
    tun_there || fail "there is no working /dev/net/tun; Slurm needs the tailnet as an interface of the kernel" \
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
    # One that is to stay in its tailnet shows that it is reached there.
    refuse_shared_addresses
    if tailscale_there; then refuse_another_tailnet; fi
}
