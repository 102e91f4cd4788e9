#!/bin/bash
# Slurm speaks over the tailnet alone, so the tailnet must be an interface of the kernel.

tun_there() { [ -c /dev/net/tun ] && : 2>/dev/null <>/dev/net/tun; }

tailnet_gate() {
    tun_there || fail "there is no working /dev/net/tun; Slurm needs the tailnet as an interface of the kernel" \
        "load the module tun, or give the container /dev/net/tun and NET_ADMIN"
}
