#!/bin/bash
# Nothing answers any more, and nothing of ours is in the way of another cluster's jobs.

fabric_leave() {
    if [ -e /etc/systemd/system/tailrack-fabric.socket ]; then
        systemctl disable -q --now tailrack-fabric.socket
        rm -f /etc/systemd/system/tailrack-fabric.socket /etc/systemd/system/tailrack-fabric@.service
        systemctl daemon-reload
    fi
    if [ -e /etc/systemd/system/tailrack-fabric-again.timer ]; then
        systemctl disable -q --now tailrack-fabric-again.timer
        rm -f /etc/systemd/system/tailrack-fabric-again.{timer,service} /usr/local/sbin/tailrack-fabric-again
        systemctl daemon-reload
    fi
    rm -f /var/lib/tailrack/head-address /usr/local/lib/tailrack/fabric.py /usr/local/lib/tailrack/task-prolog \
        /etc/enroot/mounts.d/60-tailrack.fstab /etc/enroot/hooks.d/60-tailrack.sh
}
