#!/bin/bash
# Slurm knows no containers here any more. Enroot stays, and what users keep in their containers.

enroot_pyxis_leave() {
    # What an import that was killed has left, log-ins first.
    rm -rf /run/tailrack-images /var/lib/tailrack/images
    [ -e /etc/tailrack/plugstack.d/pyxis.conf ] || return 0
    systemctl disable -q --now tailrack-containers.timer
    rm -f /etc/tailrack/plugstack.d/pyxis.conf /usr/local/lib/tailrack/{spank_pyxis.so,importer,import-image} /etc/tailrack/containers \
        /etc/systemd/system/tailrack-containers.{service,timer} /usr/local/sbin/tailrack-containers \
        /etc/enroot/hooks.d/50-tailrack-ranks.sh /etc/enroot/hooks.d/50-slurm-pmi.sh
    rm -rf /var/lib/tailrack/containers
    [ ! -e /etc/slurm/plugstack.conf ] || sed -i '\|^include /etc/tailrack/plugstack.d/|d' /etc/slurm/plugstack.conf
    systemctl daemon-reload
}
