#!/bin/bash
# What a slurmstepd says of a job's end to a slurmctld that has another munge key is refused, and not said again: the job would stay
# in Slurm's books, and be run once more. So those here wait while the keys differ; the jobs themselves go on. Part of a
# program of its own too, so it uses nothing of base.sh.

# Seconds after which they go on whatever has become of the change.
ENDS_LONGEST=30

# A timer of systemd comes first: it is there where this program is killed.
hold_ends() {
    systemd-run -q --collect --timer-property=AccuracySec=1s --on-active="$ENDS_LONGEST" pkill -CONT -x slurmstepd
    pkill -STOP -x slurmstepd || :
}

ends_go_on() { pkill -CONT -x slurmstepd || :; }

# Once slurmctld understands this machine again, which nobody here waits for.
ends_go_on_soon() {
    # shellcheck disable=SC2016  # read by the inner shell
    systemd-run -q --collect bash -c \
        'until timeout 5 sinfo -h -o %N >/dev/null 2>&1 || [ $SECONDS -gt 20 ]; do sleep 0.3; done; pkill -CONT -x slurmstepd'
}
