#!/bin/bash
# Write this machine's GPUs into its own file. The controller serves gres.conf, which includes this file by path; Slurm
# serves only files named without a path (src/common/fetch_config.c). slurmd then finds its line when it starts, and the
# controller needs no reconfiguration. This runs before the head node knows the machine and serves that gres.conf.
#
# NODE_GRES_CONF   the machine's line of gres.conf, empty without GPUs

slurm_join() {
    ensure_file /etc/tailrack/gres.conf 0644 root:root "# Written by tailrack.${NODE_GRES_CONF:+$'\n'$NODE_GRES_CONF}"
}
