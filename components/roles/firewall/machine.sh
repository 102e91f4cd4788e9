#!/bin/bash
# uses: ssh_trust/sshd firewall/hold
# Load the cluster's firewall rules in a separate table, before anything listens.
#
# FIREWALL_PORTS, FIREWALL_UDP_PORTS   ports and ranges of the cluster's daemons, separated by commas
# NODE_OPEN_PORTS                      those that other programs use here, one a line (a fact of the check step)
# NODE_RELAY_PORT                      UDP port if this machine is the tailnet's relay; empty otherwise

RESERVED=/proc/sys/net/ipv4/ip_local_reserved_ports
# The value before the cluster.
RESERVED_BEFORE=$STATE_DIR/reserved-ports

# Reserve the ports, so that the kernel assigns none of them to a program that asks for any free port. NCCL and MPI
# listen on such ports on the fabric, where one in thirty would be closed. Reservations of other programs stay.
reserve_ports() {
    local reserved
    reserved=$(cat "$RESERVED" 2>/dev/null) || :
    [ -e "$RESERVED_BEFORE" ] || ensure_file "$RESERVED_BEFORE" 0644 root:root "$reserved"
    if ! { printf '%s\n' "${reserved:+$reserved,}${FIREWALL_PORTS// /}${NODE_RELAY_PORT:+,$NODE_RELAY_PORT}" >"$RESERVED"; } 2>/dev/null; then
        note "cannot write $RESERVED here, as in containers: some connections to a job's port may be refused"
        return
    fi
    # The kernel's merged list.
    ensure_file /etc/sysctl.d/90-tailrack.conf 0644 root:root "# Written by tailrack.
net.ipv4.ip_local_reserved_ports = $(cat "$RESERVED")"
}

# Print the ports of list $1 that are closed here.
closed_ports() {
    local port ports=''
    for port in ${1//,/ }; do
        has_line "$port" "$NODE_OPEN_PORTS" || ports+=${ports:+, }$port
    done
    printf '%s' "$ports"
}

# Succeed if the cluster installed the SSH server on a machine whose steps are local: no one used SSH there before.
sshd_is_for_the_tailnet() { [ -e "$HERE_FILE" ] && sshd_came_with_us; }

firewall_machine() {
    local tcp udp message
    tcp=$(closed_ports "$FIREWALL_PORTS") udp=$(closed_ports "$FIREWALL_UDP_PORTS")
    if sshd_is_for_the_tailnet; then tcp+=", $(sshd_port)"; fi
    # nft rejects an empty set.
    [ -z "$udp" ] || udp="        udp dport { $udp } drop"$'\n'
    reserve_ports
    # A local user can send from a loopback address, which some daemons trust, to another address of this machine.
    local new_connection="tcp dport { $tcp } tcp flags & (syn | ack) == syn drop"
    # Declare, delete and create the table in one transaction, so that the rules never lapse.
    ensure_file /etc/tailrack/firewall.nft 0644 root:root "# Written by tailrack.
table inet tailrack {}
delete table inet tailrack
table inet tailrack {
    chain input {
        type filter hook input priority -10; policy accept;
        iifname \"lo\" ip saddr 127.0.0.0/8 ip daddr != 127.0.0.0/8 $new_connection
        iifname \"lo\" ip6 saddr ::1 ip6 daddr != ::1 $new_connection
        iifname { \"lo\", \"tailscale0\" } accept
${NODE_RELAY_PORT:+        udp dport $NODE_RELAY_PORT accept
}        # Only new connections: answers to connections from such a port pass.
        $new_connection
$udp    }
}"
    reload_units tailrack-firewall.service
    enable_units tailrack-firewall.service
    # Always, because a run that was cut off may have written the files without loading them.
    hold_ports
    message=$(/usr/local/lib/tailrack/hold-ports 2>&1) || note "${message:-hold-ports failed}: other accounts can bind the cluster's \
ports while a daemon is down, but cannot answer connections"
}
