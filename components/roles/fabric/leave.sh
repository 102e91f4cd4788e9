#!/bin/bash
# uses: machine/retire
# Remove the service and the files for jobs, which could disturb another cluster's jobs.

fabric_leave() {
    retire tailrack-fabric-again.timer tailrack-fabric-again.service tailrack-fabric.socket tailrack-fabric@.service
    rm -f /usr/local/sbin/tailrack-fabric-again /var/lib/tailrack/head-address /usr/local/lib/tailrack/fabric.py \
        /usr/local/lib/tailrack/task-prolog \
        /etc/enroot/mounts.d/60-tailrack.fstab /etc/enroot/hooks.d/60-tailrack.sh
    if [ -d /etc/enroot ]; then find /etc/enroot -type d -empty -delete; fi
}
