#!/bin/bash
# Find the networks that may be this machine's fabric, and install the service that takes part in proofs. This runs
# after the tailnet and the munge key are set up; the step carries the program.
#
# NODE_FABRIC   `auto`, `tailnet`, or the name of an interface
# NODE_RDMA     `auto`, `none`, or names of RDMA devices, separated by commas

FABRIC_PROGRAM=/usr/local/lib/tailrack/fabric.py

# Listen on the tailnet's address only (FreeBind, because it may not exist yet at boot).
serve_fabric() {
    CHANGED=
    ensure_file /etc/systemd/system/tailrack-fabric.socket 0644 root:root "[Unit]
Description=Accept the head node's requests to prove the fabric

[Socket]
ListenStream=$(tailscale ip -4):6816
FreeBind=yes
Accept=yes
MaxConnections=32
# Otherwise many connections would make systemd close the socket for good.
TriggerLimitIntervalSec=0

[Install]
WantedBy=sockets.target"
    ensure_file /etc/systemd/system/tailrack-fabric@.service 0644 root:root "[Unit]
Description=Prove the fabric with another node
# A refused request is only an entry in the journal, not a failed unit.
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
    local networks='{"interfaces": [], "rdma": []}'
    if compgen -G '/sys/class/infiniband/*' >/dev/null; then ensure_packages ibverbs-utils; fi
    serve_fabric
    if [ "$NODE_FABRIC" != tailnet ]; then
        networks=$("$FABRIC_PROGRAM" interfaces "$NODE_FABRIC" "$NODE_RDMA") || fail "$networks" \
            "correct fabric: or rdma: of $HOST_NAME's site: use auto, or names that its nodes have ('ip -brief address', 'ls /sys/class/infiniband')"
    fi
    result fabric "$networks"
}
