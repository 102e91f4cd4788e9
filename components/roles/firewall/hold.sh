#!/bin/bash
# The cluster's ports are its daemons' own: no other account gets one while a daemon restarts, or has not started yet.
#
# FIREWALL_HOLDERS   `port account machines`, one a line (components/roles/role.py, Holder)
# FIREWALL_HEAD      the head node's name

# Accounts that systemd makes for units with DynamicUser=.
DYNAMIC_UIDS='61184 65519'

# `port first-uid last-uid` of the ports that this machine's daemons have, one a line. The numbers and not the names: at boot a
# directory service may not answer yet. An account that is not here yet gets nothing: hold_ports runs again once it is.
held_ports() {
    local port account machines uids
    while read -r port account machines; do
        [ -n "$port" ] || continue
        if [ "$machines" = head ] && [ "$HOST_NAME" != "$FIREWALL_HEAD" ]; then continue; fi
        case $account in
            dynamic) uids=$DYNAMIC_UIDS ;;
            root | kernel) uids='0 0' ;;
            *) uids=$(id -u "$account" 2>/dev/null) && uids+=" $uids" || uids='0 0' ;;
        esac
        printf '%s %s %s\n' "$port" "$uids" "$account"
    done <<<"$FIREWALL_HOLDERS"
}

# What holds them where the kernel takes no BPF program: whoever listens at such a port answers no connection. An answer without
# a socket that belongs to an account is one too: anybody who fills his own queue of connections has the kernel send cookies. (The
# kernel's own sockets, of its NFS server, have no account, and only those of others can be told.)
held_rules() {
    local port first last account ports=''
    while read -r port first last account; do
        if [ "$account" = kernel ]; then
            printf '        tcp sport %s meta skuid != 0 drop\n' "$port"
            continue
        fi
        ports+="${ports:+, }$port"
        [ "$first" = "$last" ] || first+=-$last
        printf '        tcp sport %s meta skuid { 0%s } accept\n' "$port" "$([ "$first" = 0 ] || echo ", $first")"
    done
    [ -z "$ports" ] || printf '        tcp sport { %s } drop\n' "$ports"
}

# Write these ports, and load them together with the rules of machine.sh. Also before a daemon starts whose account may be new.
hold_ports() {
    local held CHANGED
    held=$(held_ports)
    ensure_file /etc/tailrack/ports 0644 root:root "# Written by tailrack: port, first and last uid that may bind it.
$(cut -d ' ' -f 1-3 <<<"$held")"
    ensure_file /etc/tailrack/ports.nft 0644 root:root "# Written by tailrack.
table inet tailrack_ports {}
delete table inet tailrack_ports
table inet tailrack_ports {
    chain output {
        type filter hook output priority -10; policy accept;
        tcp flags & (syn | ack) != syn | ack accept
$(held_rules <<<"$held")
    }
}"
    systemctl reload-or-restart tailrack-firewall.service ||
        fail "the cluster's ports cannot be closed on this machine's own networks" \
            "see 'journalctl -u tailrack-firewall' on $HOST_NAME: its kernel must have nf_tables"
}
