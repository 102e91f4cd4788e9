#!/bin/bash
# uses: machine/keep_running machine/retire firewall/hold slurm/files slurm/folder slurm/fragment slurm/jobs slurm/foreign_files
# Run the controller with the cluster's configuration.
#
# HEAD_EXPIRE_PROGRAM                   text of the program that removes nodes that their provider took back
# HEAD_COMPUTES                         true when the head node runs jobs too; NODE_* then describe it
# SLURM_JOB_LIMIT_SECONDS               see jobs.sh
# SLURM_SLURM_CONF, SLURM_GRES_CONF, SLURM_TOPOLOGY_CONF, SLURM_CGROUP_CONF, SLURM_MPI_CONF, SLURM_JOB_SUBMIT_LUA
# SLURM_PROLOG, SLURM_EPILOG             programs that the controller sends to nodes when slurm.conf names them

# slurmctld rejects the state of a cluster with another name, and reports only "Unspecified error".
refuse_another_cluster_name() {
    local old_name new_name
    # The file contains the name and, since 24.11, a number.
    old_name=$(read_theirs /var/lib/slurm/slurmctld/clustername 2>/dev/null | tr -cd '[:print:]\n' | cut -c 1-200) || return 0
    old_name=${old_name%%$'\n'*} old_name=${old_name%%|*}
    new_name=$(sed -n 's/^ClusterName=//p' <<<"$SLURM_SLURM_CONF")
    [ -z "$old_name" ] || [ "$old_name" = "$new_name" ] || fail \
        "the cluster was created as '$old_name' and the config names it '$new_name'; slurmctld would reject its saved state" \
        "set tailrack:cluster.name back to $old_name, or discard all jobs: rm -r /var/lib/slurm/slurmctld on $HOST_NAME"
}

# Fail if the config now uses the name of a partition that a pool added.
refuse_partitions_of_pools() {
    local path name
    for path in "$SLURM_POOLS"/*/slurm.conf; do
        [ -e "$path" ] || continue
        while read -r name; do
            ! grep -q "^PartitionName=$name " <<<"$SLURM_SLURM_CONF" || fail \
                "partition $name belongs to the pool $(basename "$(dirname "$path")")" \
                "give the cluster's site or partition another name, or remove that pool first ('make down' of its stack)"
        done < <(sed -n 's/^PartitionName=\([^ ]*\) .*/\1/p' "$path")
    done
}

head_is_node() { scontrol show node "$HOST_NAME" >/dev/null 2>&1; }
head_node_deleted() { ! head_is_node || scontrol delete "nodename=$HOST_NAME"; }

# Remove any slurmd from a head node that runs no jobs, even one from an image or a package: root of any machine with
# Slurm's key could use it to become root here.
remove_slurmd() {
    if head_is_node; then
        clear_jobs "$HOST_NAME" "tailrack: runs no jobs any more" "$SLURM_JOB_LIMIT_SECONDS" ||
            note "some jobs did not end and could not be requeued; they continue without slurmd until they end"
    fi
    if [ -e /etc/systemd/system/tailrack-slurmd-watchdog.service ]; then systemctl disable -q --now tailrack-slurmd-watchdog; fi
    if systemctl cat slurmd >/dev/null 2>&1; then systemctl disable -q --now slurmd; fi
    rm -rf /etc/systemd/system/slurmd.service.d/tailrack{,-restart}.conf "${SLURM_NODES:?}/$HOST_NAME"
}

slurm_head() {
    refuse_another_cluster_name
    refuse_partitions_of_pools
    local offered=$STATE_DIR/slurm/offered
    # Installing a built release may have created Slurm's account after the ports were last held.
    hold_ports
    set_foreign_slurm_aside
    give_slurm_state
    give_folder slurm 0755 /var/log/slurm
    rm -rf "$offered"
    # slurm.conf names the last two without a path, so slurmctld sends them to all nodes (src/common/fetch_config.c,
    # 23.11 and newer). A node without them would drain at its first job.
    ensure_files \
        "$offered/slurm.conf" 0644 root:root "$SLURM_SLURM_CONF" \
        "$offered/gres.conf" 0644 root:root "$SLURM_GRES_CONF" \
        "$offered/topology.conf" 0644 root:root "$SLURM_TOPOLOGY_CONF" \
        "$offered/cgroup.conf" 0644 root:root "$SLURM_CGROUP_CONF" \
        "$offered/mpi.conf" 0644 root:root "$SLURM_MPI_CONF" \
        "$offered/job_submit.lua" 0644 root:root "$SLURM_JOB_SUBMIT_LUA" \
        "$offered/tailrack-prolog" 0644 root:root "$SLURM_PROLOG" \
        "$offered/tailrack-epilog" 0644 root:root "$SLURM_EPILOG"
    if [ "$HEAD_COMPUTES" = true ]; then write_slurm_node; else remove_slurmd; fi
    keep_running slurmctld.service
    reload_units slurmctld.service tailrack-slurmctld-watchdog.service tailrack-slurm-room.service
    enable_units slurmctld.service tailrack-slurmctld-watchdog.service tailrack-slurm-room.service
    systemctl restart tailrack-slurmctld-watchdog tailrack-slurm-room
    offer_slurm_files "$offered" || fail "$REFUSED" \
        "correct tailrack:slurm.settings; see 'journalctl -u slurmctld' on $HOST_NAME"
    [ "$HEAD_COMPUTES" = true ] || wait_until 60 head_node_deleted ||
        fail "slurmctld does not delete the head node's own node" "see 'scontrol show node $HOST_NAME' on $HOST_NAME"
    # From now on, members' steps add to these files.
    rm -rf "$SLURM_BASE"
    mv "$offered" "$SLURM_BASE"
    # Its name before version 0.1.
    retire tailrack-forget.timer tailrack-forget.service
    rm -f /usr/local/sbin/tailrack-forget
    ensure_file /usr/local/sbin/tailrack-expire 0755 root:root "$HEAD_EXPIRE_PROGRAM"
    enable_units --now tailrack-expire.timer
    result slurm_version "$(json_string "$(slurmctld -V | awk '{print $2}')")"
}
