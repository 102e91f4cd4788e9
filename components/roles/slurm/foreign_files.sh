#!/bin/bash
# uses: foreign_cluster/foreign slurm/folder
# Set aside Slurm's files of another cluster. With a foreign /etc/slurm/slurm.conf, slurmd still uses its --conf-server,
# but every Slurm command would contact the other controller.

foreign_slurm_files() {
    local path
    for path in /etc/slurm/{slurm,gres,topology,cgroup,mpi}.conf /etc/slurm/job_submit.lua; do
        [ ! -e "$path" ] || grep -qF 'Written by tailrack.' "$path" || printf '%s\n' "$path"
    done
}

# Stop Slurm's daemons and move the foreign configuration and controller state into the backup.
set_foreign_slurm_aside() {
    local files path
    files=$(foreign_slurm_files)
    [ -n "$files" ] || return 0
    systemctl stop slurmd slurmctld || note "at least one of Slurm's daemons is not installed"
    # If this cluster's controller has run here, the state is its own, even if the files were changed.
    if [ -d /var/lib/slurm/slurmctld ] && [ ! -d "$STATE_DIR/slurm" ]; then
        take_slurm_folder
        set_aside /var/lib/slurm/slurmctld
    fi
    while read -r path; do set_aside "$path"; done <<<"$files"
}
