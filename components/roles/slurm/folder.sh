#!/bin/bash
# The folder above the state of Slurm's daemons. Slurm's packages give it to their account with all that is in it; on a head
# node root has it, so that the account cannot put a link in the place of what root makes there. Part of tailrack-leave too.

SLURM_FOLDER=/var/lib/slurm

take_slurm_folder() { take_folder 0755 "$SLURM_FOLDER"; }

# Leave it as the packages have it, once root has nothing more to do there.
leave_slurm_folder() {
    [ -e /etc/systemd/system/slurmctld.service.d/tailrack.conf ] && [ -d "$SLURM_FOLDER" ] && id -u slurm >/dev/null 2>&1 ||
        return 0
    chown slurm:slurm "$SLURM_FOLDER"
}
