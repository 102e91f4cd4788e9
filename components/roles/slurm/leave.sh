#!/bin/bash
# No daemon of Slurm runs any more, and none starts at the next boot.

slurm_leave() {
    local daemon
    if [ -e /etc/systemd/system/tailrack-known.service ]; then
        systemctl disable -q --now tailrack-known
        rm -f /etc/systemd/system/tailrack-known.service /usr/local/sbin/tailrack-known
    fi
    if [ -e /etc/systemd/system/tailrack-forget.timer ]; then
        systemctl disable -q --now tailrack-forget.timer
        rm -f /etc/systemd/system/tailrack-forget.{timer,service} /usr/local/sbin/tailrack-forget
    fi
    for daemon in slurmd slurmctld; do
        [ ! -e "/etc/systemd/system/$daemon.service.d/tailrack.conf" ] || systemctl disable -q --now "$daemon"
        rm -f "/etc/systemd/system/$daemon.service.d/tailrack.conf"
    done
    systemctl daemon-reload
}
