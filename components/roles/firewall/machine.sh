#!/bin/bash
# Rules in a table of the cluster's own, before anything listens.
#
# FIREWALL_PORTS   TCP and UDP ports and ranges of the cluster's daemons, with commas between

firewall_machine() {
    # Declared, deleted and made anew in one transaction: there is no moment without the rules. What this machine asked for
    # itself is answered first: one in 28 of its own connections leaves from a port of srun's range.
    ensure_file /etc/tailrack/firewall.nft 0644 root:root "# Written by tailrack.
table inet tailrack {}
delete table inet tailrack
table inet tailrack {
    chain input {
        type filter hook input priority -10; policy accept;
        iifname { \"lo\", \"tailscale0\" } accept
        ct state established,related accept
        tcp dport { $FIREWALL_PORTS } drop
        udp dport { $FIREWALL_PORTS } drop
    }
}"
    systemctl daemon-reload
    systemctl enable -q tailrack-firewall.service
    if [ -z "$CHANGED" ] && systemctl -q is-active tailrack-firewall.service; then return; fi
    systemctl reload-or-restart tailrack-firewall.service ||
        fail "the cluster's ports cannot be closed on this machine's own networks" \
            "see 'journalctl -u tailrack-firewall' on $HOST_NAME: its kernel must have nf_tables"
}
