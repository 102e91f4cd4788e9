#!/bin/bash
# uses: machine/retire
# Slurm knows no containers here any more. Enroot stays, and what users keep in their containers.

enroot_pyxis_leave() {
    # What an import that was killed has left, log-ins (.credentials) first.
    rm -rf /run/tailrack-images /var/lib/tailrack/images
    [ -e /etc/tailrack/plugstack.d/pyxis.conf ] || return 0
    retire tailrack-containers.timer tailrack-containers.service
    rm -f /etc/tmpfiles.d/tailrack-containers.conf /etc/enroot/enroot.conf.d/tailrack.conf
    rm -f /usr/local/lib/tailrack/{spank_pyxis.so,slurmstepd,importer,import-image} /etc/tailrack/containers \
        /usr/local/sbin/tailrack-containers /etc/systemd/system/slurmd.service.d/tailrack-containers.conf \
        /etc/enroot/hooks.d/50-tailrack-ranks.sh /etc/enroot/hooks.d/50-slurm-pmi.sh
    rm -rf /var/lib/tailrack/containers
    [ ! -e /etc/slurm/plugstack.conf ] || sed -i '\|^include /etc/tailrack/plugstack.d/|d' /etc/slurm/plugstack.conf
    # Last: by it the rest is known to be here.
    rm -f /etc/tailrack/plugstack.d/pyxis.conf
}
