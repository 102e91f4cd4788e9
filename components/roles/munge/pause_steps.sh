#!/bin/bash
# Pause slurmstepd while the keys differ. slurmctld rejects a step's end that is signed with another key, and slurmstepd
# does not repeat it: the job would stay in Slurm's records and run again. The jobs themselves continue. Part of a
# program too, so it uses nothing of base.sh.

# Seconds after which slurmstepd continues, even if the key change is not finished.
PAUSE_LIMIT=30

# Set systemd's timer first: it works even if this program is killed.
pause_steps() {
    systemd-run -q --collect --timer-property=AccuracySec=1s --on-active="$PAUSE_LIMIT" pkill -CONT -x slurmstepd
    pkill -STOP -x slurmstepd || :
}

# Continue once slurmctld accepts this machine again, without waiting for that here.
resume_steps_later() {
    # shellcheck disable=SC2016  # read by the inner shell
    systemd-run -q --collect bash -c \
        'until timeout 5 sinfo -h -o %N >/dev/null 2>&1 || [ $SECONDS -gt 20 ]; do sleep 0.3; done; pkill -CONT -x slurmstepd'
}
