#!/bin/bash
# The machine goes by its node's name, and knows the cluster's machines by theirs (templates/tailrack-names).

names_machine() {
    local program_changed=$CHANGED
    [ -e "$STATE_DIR/host-name-before" ] || ensure_file "$STATE_DIR/host-name-before" 0644 root:root "$(hostname)"
    ensure_file "$STATE_DIR/node-name" 0644 root:root "$HOST_NAME"
    # An earlier version knew the cluster's machines by their tag. Users read names; what else is here has modes of its own.
    rm -f "$STATE_DIR/tailnet-tag"
    chmod 0711 "$STATE_DIR"
    [ ! -d /etc/cloud ] || ensure_file /etc/cloud/cloud.cfg.d/99-tailrack.cfg 0644 root:root "preserve_hostname: true"
    reload_units tailrack-names.service tailrack-names-follow.service
    enable_units tailrack-names.service tailrack-names-follow.service
    # Not a restart of one that has run: Slurm's daemons require it, and would be restarted with it. One that fails says so here;
    # the unit would try again for ever.
    /usr/local/sbin/tailrack-names
    systemctl start tailrack-names.service
    if [ -n "$program_changed" ]; then
        systemctl restart tailrack-names-follow.service
    else
        systemctl start tailrack-names-follow.service
    fi
    if systemctl -q is-active systemd-resolved.service; then ask_nobody_around; fi
}

# Else every machine of the provider's network is asked for a name without a dot that no machine has: anybody there could
# answer, and nobody's name fails after seconds instead of at once.
ask_nobody_around() {
    CHANGED=
    ensure_file /etc/systemd/resolved.conf.d/tailrack.conf 0644 root:root $'[Resolve]\nLLMNR=no'
    # Not reloaded: systemd 257's forgets then whom it asks, until /etc/resolv.conf changes. Waited for: packages may come next.
    if [ -n "$CHANGED" ]; then systemctl restart systemd-resolved.service; fi
}
