#!/bin/bash
# uses: tailnet/membership
# Slurm speaks over the tailnet alone, so the tailnet must be an interface of the kernel. And the machine is free to join.
#
# NODE_ADOPT   true where it is to stay in its tailnet as it is

tun_there() { [ -c /dev/net/tun ] && : 2>/dev/null <>/dev/net/tun; }

tailnet_gate() {
    tun_there || fail "there is no working /dev/net/tun; Slurm needs the tailnet as an interface of the kernel" \
        "load the module tun, or give the container /dev/net/tun and NET_ADMIN"
    if tailscale_there; then
        new_enough
        let_leaving_end
    fi
    if [ "$NODE_ADOPT" = true ]; then require_adoptable; elif tailscale_there; then refuse_another_tailnet; fi
}
