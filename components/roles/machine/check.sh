#!/bin/bash
# uses: machine/checks
# Check the requirements for every machine before anything is changed, and report its processors and memory.

machine_check() {
    [ "$(id -u)" -eq 0 ] || fail "the login is not root, and sudo did not give root" \
        "give the user password-less sudo (NOPASSWD:ALL) on $HOST_NAME"
    [ -d /run/systemd/system ] || [ -e /dev/net/tun ] || fail \
        "this is a container without systemd and without a TUN device, such as the pods of some clouds (often without UDP too): neither daemons nor a tailnet can run in it" \
        "rent a virtual machine or bare metal instead (docs/providers.md), and remove $HOST_NAME from the config"
    [ -d /run/systemd/system ] || fail "systemd does not run here, and a node's daemons are systemd units" \
        "use a machine or a container with systemd as its first process"
    command -v apt-get >/dev/null || fail "this is not Debian or Ubuntu: there is no apt-get"
    wait_for_cloud_init
    result cpus "$(nproc)"
    result memory_mb "$(awk '$1 == "MemTotal:" {print int($2 / 1024)}' /proc/meminfo)"
}
