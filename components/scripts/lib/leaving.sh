#!/bin/bash
# How a machine leaves: Slurm stopped, share unmounted, munge key gone, tailnet logged out. What users made stays.

LEAVE_PROGRAM=/usr/local/sbin/tailrack-leave
LEAVE_LOGIN=/etc/ssh/sshd_config.d/tailrack-leave.conf

# Trust both ways: the cluster's authority, this machine's certificate, the head node's way in.
forget_trust() {
    rm -f /etc/ssh/ssh_known_hosts.d-tailrack /etc/ssh/ssh_config.d/tailrack.conf \
        /etc/ssh/ssh_host_ed25519_key-cert.pub /etc/ssh/sshd_config.d/tailrack.conf "$LEAVE_LOGIN"
    systemctl reload ssh
}

# Forget the cluster's secrets and the tailnet. The logout comes a moment later, by systemd: it ends the very
# connection over which the head node asked for it.
leave_tailnet() {
    systemctl disable -q --now munge
    rm -f /etc/munge/munge.key
    systemctl disable -q --now tailrack-names.service
    systemctl disable -q tailrack-tailnet.service
    systemd-run -q --on-active=2s --unit=tailrack-logout-$RANDOM /bin/sh -c \
        'tailscale logout; systemctl disable --now tailscaled; rm -f /var/lib/tailscale/tailscaled.state'
}

# The program a node keeps for the day it leaves, and the key that may call it and nothing else.
ensure_leave_program() {
    local leave_key=$1 head_address=$2 unit authorized=/root/.ssh/authorized_keys line
    unit=$(systemd-escape --path "$SHARE_MOUNT")
    ensure_file "$LEAVE_PROGRAM" 0755 root:root "#!/bin/bash
# Written by tailrack: this node leaves the cluster. Run by the head node, or by hand.
set -uo pipefail
LEAVE_LOGIN=$LEAVE_LOGIN
$(declare -f forget_trust leave_tailnet)
systemctl disable -q --now slurmd
systemctl disable -q --now $unit.automount
systemctl stop $unit.mount
rm -f /etc/systemd/system/$unit.automount /etc/systemd/system/$unit.mount
rm -f /etc/systemd/system/slurmd.service.d/tailrack.conf
sed -i '/ tailrack-leave\$/d' $authorized
systemctl daemon-reload
forget_trust
leave_tailnet
echo left"
    line="restrict,from=\"$head_address\",command=\"$LEAVE_PROGRAM\" $leave_key tailrack-leave"
    install -d -m 0700 /root/.ssh
    touch "$authorized"
    chmod 0600 "$authorized"
    if ! grep -qxF "$line" "$authorized"; then
        sed -i '/ tailrack-leave$/d' "$authorized"
        printf '%s\n' "$line" >>"$authorized"
    fi
    # Where root may not log in at all, this one command still must be heard.
    CHANGED=
    ensure_file "$LEAVE_LOGIN" 0644 root:root "# Written by tailrack: the head node may run tailrack-leave.
Match User root Address $head_address
    PermitRootLogin forced-commands-only"
    if [ -n "$CHANGED" ]; then
        sshd -t
        systemctl reload ssh
    fi
}
