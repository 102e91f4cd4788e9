#!/bin/bash
# The parent folder of the state of Slurm's daemons. Slurm's packages give it to Slurm's account. On a head node root
# owns it, so that the account cannot replace root's paths by links. Part of tailrack-leave too.

SLURM_FOLDER=/var/lib/slurm
# Exists while slurmctld's state is a restored backup, which belongs to root even if a package changed its owner.
SLURM_RESTORED=/var/lib/tailrack/slurm-restored

take_slurm_folder() { take_folder 0755 "$SLURM_FOLDER"; }

# Give slurmctld's account its state folder.
give_slurm_state() {
    take_slurm_folder
    if [ -e "$SLURM_RESTORED" ] && [ ! -L "$SLURM_FOLDER/slurmctld" ]; then take_folder 0700 "$SLURM_FOLDER/slurmctld"; fi
    give_folder slurm 0700 "$SLURM_FOLDER/slurmctld"
    rm -f "$SLURM_RESTORED"
}

# Give the parent folder back to Slurm's account, as the packages have it, once root is done there.
leave_slurm_folder() {
    [ -e /etc/systemd/system/slurmctld.service.d/tailrack.conf ] && [ -d "$SLURM_FOLDER" ] && id -u slurm >/dev/null 2>&1 ||
        return 0
    chown slurm:slurm "$SLURM_FOLDER"
}
