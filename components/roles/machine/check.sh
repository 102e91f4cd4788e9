#!/bin/bash
# uses: machine/checks
# What every machine must be before anything on it is changed, and what it has.

machine_check() {
    [ "$(id -u)" -eq 0 ] || fail "the login is not root and sudo gave no root" \
        "give the user password-less sudo (NOPASSWD:ALL) on $HOST_NAME"
    [ -d /run/systemd/system ] || [ -e /dev/net/tun ] || fail \
        "this is a container without systemd and without a TUN device, as clouds that rent out pods give it (mostly without UDP too): no daemon and no tailnet can run in it" \
        "rent a virtual machine or bare metal in its place (docs/providers.md), and take $HOST_NAME out of the config"
    [ -d /run/systemd/system ] || fail "systemd does not run here; the daemons of a node are its units" \
        "use a machine or a container with systemd as its first process"
    command -v apt-get >/dev/null || fail "this is not Debian or Ubuntu: there is no apt-get"
    wait_for_cloud_init
    result cpus "$(nproc)"
    result memory_mb "$(awk '$1 == "MemTotal:" {print int($2 / 1024)}' /proc/meminfo)"
}
