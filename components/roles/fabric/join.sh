#!/bin/bash
# What may be the fabric of this machine, and the service by which it takes part in proving it. After the tailnet and
# the munge key are there; the program comes with the step.
#
# NODE_FABRIC   `auto`, `tailnet`, or the name of an interface
# NODE_RDMA     `auto`, `none`, or names of RDMA devices with commas between

FABRIC_PROGRAM=/usr/local/lib/tailrack/fabric.py

# On the tailnet's address alone, which may not be there yet at a boot.
answer_for_fabric() {
    CHANGED=
    ensure_file /etc/systemd/system/tailrack-fabric.socket 0644 root:root "[Unit]
Description=The head node may ask this machine to prove its fabric

[Socket]
ListenStream=$(tailscale ip -4):6816
FreeBind=yes
Accept=yes
MaxConnections=32
# Else whoever connects often enough would have it closed for good.
TriggerLimitIntervalSec=0

[Install]
WantedBy=sockets.target"
    ensure_file /etc/systemd/system/tailrack-fabric@.service 0644 root:root "[Unit]
Description=Proves the fabric with another node
# One that is refused says so in the journal, and leaves no failed unit behind.
CollectMode=inactive-or-failed

[Service]
ExecStart=$FABRIC_PROGRAM serve $HOST_NAME $STATE_DIR/head-address
StandardInput=socket
StandardOutput=socket
StandardError=journal
RuntimeMaxSec=60
NoNewPrivileges=yes
CapabilityBoundingSet=CAP_NET_RAW"
    reload_units tailrack-fabric.socket
    enable_units tailrack-fabric.socket
    if [ -n "$CHANGED" ] || ! systemctl -q is-active tailrack-fabric.socket; then
        systemctl restart tailrack-fabric.socket
    fi
}

fabric_join() {
    local found='{"interfaces": [], "rdma": []}'
    if compgen -G '/sys/class/infiniband/*' >/dev/null; then ensure_packages ibverbs-utils; fi
    answer_for_fabric
    if [ "$NODE_FABRIC" != tailnet ]; then
        found=$("$FABRIC_PROGRAM" interfaces "$NODE_FABRIC" "$NODE_RDMA") || fail "$found" \
            "correct fabric: or rdma: of $HOST_NAME's site: auto, or what its nodes have ('ip -brief address', 'ls /sys/class/infiniband')"
    fi
    result fabric "$found"
}
