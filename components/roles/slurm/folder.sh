#!/bin/bash
# The folder above the state of Slurm's daemons. Slurm's packages give it to their account with all that is in it; on a head
# node root has it, so that the account cannot put a link in the place of what root makes there. Part of tailrack-leave too.

SLURM_FOLDER=/var/lib/slurm
# Is there while slurmctld's state is as a backup has brought it back: root's, whatever its package has done since.
SLURM_RESTORED=/var/lib/tailrack/slurm-restored

take_slurm_folder() { take_folder 0755 "$SLURM_FOLDER"; }

# Give slurmctld's account the folder of its state.
give_slurm_state() {
    take_slurm_folder
    if [ -e "$SLURM_RESTORED" ] && [ ! -L "$SLURM_FOLDER/slurmctld" ]; then take_folder 0700 "$SLURM_FOLDER/slurmctld"; fi
    give_folder slurm 0700 "$SLURM_FOLDER/slurmctld"
    rm -f "$SLURM_RESTORED"
}

# Leave it as the packages have it, once root has nothing more to do there.
leave_slurm_folder() {
    [ -e /etc/systemd/system/slurmctld.service.d/tailrack.conf ] && [ -d "$SLURM_FOLDER" ] && id -u slurm >/dev/null 2>&1 ||
        return 0
    chown slurm:slurm "$SLURM_FOLDER"
}
