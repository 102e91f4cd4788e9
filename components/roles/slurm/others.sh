#!/bin/bash
# uses: foreign_cluster/foreign slurm/folder
# Slurm's files of another cluster. Where /etc/slurm/slurm.conf is, slurmd goes by its --conf-server all the same, but
# every command here would speak to the controller that the file names.

slurm_files_of_others() {
    local path
    for path in /etc/slurm/{slurm,gres,topology,cgroup,mpi}.conf /etc/slurm/job_submit.lua; do
        [ ! -e "$path" ] || grep -qF 'Written by tailrack.' "$path" || printf '%s\n' "$path"
    done
}

# Its daemons end, its files and its controller's state make room.
set_slurm_of_others_aside() {
    local files path
    files=$(slurm_files_of_others)
    [ -n "$files" ] || return 0
    systemctl stop slurmd slurmctld || note "not both of Slurm's daemons are here"
    # Where a controller of ours has been, it is its state, whatever somebody did to the files.
    if [ -d /var/lib/slurm/slurmctld ] && [ ! -d "$STATE_DIR/slurm" ]; then
        take_slurm_folder
        set_aside /var/lib/slurm/slurmctld
    fi
    while read -r path; do set_aside "$path"; done <<<"$files"
}
