#!/bin/bash
# Hold the cluster's ports for the accounts of its daemons: no other account gets one while a daemon restarts or has not
# started.
#
# FIREWALL_HOLDERS   `port account machines`, one a line (components/roles/role.py, Holder)
# FIREWALL_HEAD      the head node's name

# The uids that systemd gives to units with DynamicUser=.
DYNAMIC_UIDS='61184 65519'

# Print `port first-uid last-uid account` for the ports of this machine's daemons, one a line. Uids, because a directory
# service may not answer at boot. A port whose account does not exist yet is root's until hold_ports runs again.
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

# Print rules for kernels that take no BPF program: another account that listens at such a port cannot answer a
# connection. They also drop answers from sockets without an account, because an account that fills its queue of
# connections makes the kernel send SYN cookies. (Sockets of the kernel's NFS server have no account, so its ports only
# drop the answers of other accounts.)
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

# Write the ports and load them with the rules of machine.sh. Other roles call this before they start a daemon with a
# new account.
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
        fail "cannot close the cluster's ports on this machine's other networks" \
            "see 'journalctl -u tailrack-firewall' on $HOST_NAME; its kernel must have nf_tables"
}
