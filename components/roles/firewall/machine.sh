#!/bin/bash
# uses: ssh_trust/sshd firewall/hold
# Rules in a table of the cluster's own, before anything listens.
#
# FIREWALL_PORTS, FIREWALL_UDP_PORTS   ports and ranges of the cluster's daemons, with commas between
# NODE_OPEN_PORTS                      those of them that others need on this machine, one a line (a fact of the check step)
# NODE_RELAY_PORT  UDP port at which this machine is the tailnet's relay, empty where it is none

RESERVED=/proc/sys/net/ipv4/ip_local_reserved_ports
# What it was before the cluster.
RESERVED_BEFORE=$STATE_DIR/reserved-ports

# The kernel gives none of these ports to a program that asks for any: NCCL and MPI listen on such ports on the fabric,
# and a closed one would be refused there, one in thirty. Others' reservations stay.
reserve_ports() {
    local before
    before=$(cat "$RESERVED" 2>/dev/null) || :
    [ -e "$RESERVED_BEFORE" ] || ensure_file "$RESERVED_BEFORE" 0644 root:root "$before"
    if ! { printf '%s\n' "${before:+$before,}${FIREWALL_PORTS// /}${NODE_RELAY_PORT:+,$NODE_RELAY_PORT}" >"$RESERVED"; } 2>/dev/null; then
        note "$RESERVED cannot be written here, as in containers: now and then a connection to a job's port may be refused"
        return
    fi
    # As the kernel has put them together.
    ensure_file /etc/sysctl.d/90-tailrack.conf 0644 root:root "# Written by tailrack.
net.ipv4.ip_local_reserved_ports = $(cat "$RESERVED")"
}

# What of ports with commas between is closed here.
closed() {
    local port ports=''
    for port in ${1//,/ }; do
        has_line "$port" "$NODE_OPEN_PORTS" || ports+=${ports:+, }$port
    done
    printf '%s' "$ports"
}

# An SSH server that came with the cluster, onto a machine that nobody reaches by one: its steps are local.
sshd_is_for_the_tailnet() { [ -e "$HERE_FILE" ] && sshd_came_with_us; }

firewall_machine() {
    local tcp udp said
    tcp=$(closed "$FIREWALL_PORTS") udp=$(closed "$FIREWALL_UDP_PORTS")
    if sshd_is_for_the_tailnet; then tcp+=", $(sshd_port)"; fi
    # An empty set is none to nft.
    [ -z "$udp" ] || udp="        udp dport { $udp } drop"$'\n'
    reserve_ports
    # Whoever is on this machine can send from a loopback address to one that others reach it by, and some daemons trust those.
    local begins="tcp dport { $tcp } tcp flags & (syn | ack) == syn drop"
    # Declared, deleted and made anew in one transaction: there is no moment without the rules.
    ensure_file /etc/tailrack/firewall.nft 0644 root:root "# Written by tailrack.
table inet tailrack {}
delete table inet tailrack
table inet tailrack {
    chain input {
        type filter hook input priority -10; policy accept;
        iifname \"lo\" ip saddr 127.0.0.0/8 ip daddr != 127.0.0.0/8 $begins
        iifname \"lo\" ip6 saddr ::1 ip6 daddr != ::1 $begins
        iifname { \"lo\", \"tailscale0\" } accept
${NODE_RELAY_PORT:+        udp dport $NODE_RELAY_PORT accept
}        # What begins a connection: answers to one that was begun here, from such a port, come in.
        $begins
$udp    }
}"
    reload_units tailrack-firewall.service
    enable_units tailrack-firewall.service
    # Always: a run that was cut off may have written the files and not loaded them.
    hold_ports
    said=$(/usr/local/lib/tailrack/hold-ports 2>&1) || note "${said:-hold-ports failed}: other accounts can take the cluster's \
ports while a daemon is away, and answer nobody there"
}
