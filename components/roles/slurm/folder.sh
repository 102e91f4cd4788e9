#!/bin/bash
# The parent folder of the state of Slurm's daemons. Slurm's packages give it to Slurm's account. On a head node root
# owns it, so that the account cannot replace root's paths by links. Part of tailrack-leave too.

SLURM_FOLDER=/var/lib/slurm
# Exists while slurmctld's state is a restored backup, which belongs to root even if a package changed its owner.
SLURM_RESTORED=/var/lib/tailrack/slurm-restored
take_slurm_folder() { take_folder 0755 "$SLURM_FOLDER"; }
