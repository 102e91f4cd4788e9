#!/bin/bash
# uses: machine/retire slurm/folder users/sessions
# Stop Slurm for good and remove its files of the cluster.

slurm_leave() {
    retire tailrack-slurmd-watchdog.service tailrack-slurmctld-watchdog.service tailrack-slurm-room.service
    retire tailrack-shutdown.service tailrack-expire.timer tailrack-expire.service
    retire_daemon slurmd
    retire_daemon slurmctld
    end_steps
    # User programs would keep the share from being unmounted.
    end_sessions
    forget_slurm_files
}

# End the remains of jobs. The process that keeps their scope alive ends with the scope.
end_steps() {
    local scope
    [ -e /etc/systemd/system/slurmd.service.d/tailrack.conf ] || return 0
    for scope in /etc/systemd/system/*slurmstepd.scope.d; do
        [ -e "$scope" ] || continue
        scope=${scope##*/}
        scope=${scope%.d}
        # The scope may end on its own meanwhile.
        if systemctl -q is-active "$scope"; then systemctl stop "$scope" || ! systemctl -q is-active "$scope"; fi
    done
    # Without cgroups no scope contains them.
    pkill -KILL -x slurmstepd || :
    rm -rf /var/spool/slurmd
}

forget_slurm_files() {
    local path
    for path in /etc/slurm/{slurm,gres,topology,cgroup,mpi}.conf /etc/slurm/job_submit.lua /etc/slurm/tailrack-{prolog,epilog}; do
        if grep -qsF 'Written by tailrack.' "$path"; then rm -f "$path"; fi
    done
    if [ -e /etc/systemd/system/slurmctld.service.d/tailrack.conf ] && [ -d /var/lib/slurm/slurmctld ]; then
        # Do not follow a link.
        take_slurm_folder && [ ! -L /var/lib/slurm/slurmctld ] && find /var/lib/slurm/slurmctld -mindepth 1 -delete
    fi
    leave_slurm_folder
}
