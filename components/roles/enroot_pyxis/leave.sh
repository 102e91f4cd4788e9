#!/bin/bash
# uses: machine/retire
# Remove containers from Slurm on this machine. Enroot and users' containers stay.

enroot_pyxis_leave() {
    # Left over from an import that was killed; logins (.credentials) first.
    rm -rf /run/tailrack-images /var/lib/tailrack/images
    [ -e /etc/tailrack/plugstack.d/pyxis.conf ] || return 0
    retire tailrack-containers.timer tailrack-containers.service
    rm -f /etc/tmpfiles.d/tailrack-containers.conf /etc/enroot/enroot.conf.d/tailrack.conf
    rm -f /usr/local/lib/tailrack/{spank_pyxis.so,slurmstepd,importer,import-image} /etc/tailrack/containers \
        /usr/local/sbin/tailrack-containers /etc/systemd/system/slurmd.service.d/tailrack-containers.conf \
        /etc/enroot/hooks.d/50-tailrack-ranks.sh /etc/enroot/hooks.d/50-slurm-pmi.sh
    rm -rf /var/lib/tailrack/containers
    [ ! -e /etc/slurm/plugstack.conf ] || sed -i '\|^include /etc/tailrack/plugstack.d/|d' /etc/slurm/plugstack.conf
    # Last, because this file marks that the rest may still be here.
    rm -f /etc/tailrack/plugstack.d/pyxis.conf
}
