#!/bin/bash
# Set the machine's host name to its node's name, and make the cluster's names resolve (templates/tailrack-names).

names_machine() {
    local program_changed=$CHANGED
    [ -e "$STATE_DIR/host-name-before" ] || ensure_file "$STATE_DIR/host-name-before" 0644 root:root "$(hostname)"
    ensure_file "$STATE_DIR/node-name" 0644 root:root "$HOST_NAME"
    # An earlier version used the machines' tag. Users must be able to read names; other files here have their own
    # modes.
    rm -f "$STATE_DIR/tailnet-tag"
    chmod 0711 "$STATE_DIR"
    [ ! -d /etc/cloud ] || ensure_file /etc/cloud/cloud.cfg.d/99-tailrack.cfg 0644 root:root "preserve_hostname: true"
    reload_units tailrack-names.service tailrack-names-follow.service
    enable_units tailrack-names.service tailrack-names-follow.service
    # Run the program instead of restarting the unit, because Slurm's daemons require the unit and would restart with
    # it. A failure is reported here; the unit would retry forever.
    /usr/local/sbin/tailrack-names
    systemctl start tailrack-names.service
    if [ -n "$program_changed" ]; then
        systemctl restart tailrack-names-follow.service
    else
        systemctl start tailrack-names-follow.service
    fi
    if systemctl -q is-active systemd-resolved.service; then disable_llmnr; fi
}

# Disable LLMNR. With it, a name without a dot that does not exist is asked of every machine in the provider's network:
# any of them could answer, and a failure takes seconds.
disable_llmnr() {
    CHANGED=
    ensure_file /etc/systemd/resolved.conf.d/tailrack.conf 0644 root:root $'[Resolve]\nLLMNR=no'
    # Restart, because systemd 257 forgets its DNS servers on a reload until /etc/resolv.conf changes. Wait for it: the
    # next action may install packages.
    if [ -n "$CHANGED" ]; then systemctl restart systemd-resolved.service; fi
}
