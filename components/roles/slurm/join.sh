#!/bin/bash
# The GPUs of this machine, in a file of its own: gres.conf, which the controller serves to all, includes it by its path, and
# only a name without a path would be served too (src/common/fetch_config.c). So a node has its line when slurmd starts,
# and the controller need not be told of it. Before the head node knows the machine: from then on it may serve that.
#
# NODE_GRES_CONF   its line of gres.conf, empty without GPUs

slurm_join() {
    ensure_file /etc/tailrack/gres.conf 0644 root:root "# Written by tailrack.${NODE_GRES_CONF:+$'\n'$NODE_GRES_CONF}"
}
