#!/bin/bash
# uses: machine/keep_running machine/retire firewall/hold slurm/files slurm/folder slurm/fragment slurm/jobs slurm/others
# The controller, with the cluster's own files.
#
# HEAD_EXPIRE_PROGRAM                   text of the program that forgets nodes that were taken back
# HEAD_COMPUTES                         true when the head node runs jobs too; then NODE_* are its own
# SLURM_JOB_LIMIT_SECONDS               see jobs.sh
# SLURM_SLURM_CONF, SLURM_GRES_CONF, SLURM_TOPOLOGY_CONF, SLURM_CGROUP_CONF, SLURM_MPI_CONF, SLURM_JOB_SUBMIT_LUA
# SLURM_PROLOG, SLURM_EPILOG             programs that the controller gives to the nodes where slurm.conf names them

# slurmctld takes the state of no other cluster, and says so by "Unspecified error" alone.
refuse_another_cluster_name() {
    local before now
    # Its name, and since 24.11 a number after it.
    before=$(read_theirs /var/lib/slurm/slurmctld/clustername 2>/dev/null | tr -cd '[:print:]\n' | cut -c 1-200) || return 0
    before=${before%%$'\n'*} before=${before%%|*}
    now=$(sed -n 's/^ClusterName=//p' <<<"$SLURM_SLURM_CONF")
    [ -z "$before" ] || [ "$before" = "$now" ] || fail \
        "the cluster here was made as '$before', and the config calls it '$now'; slurmctld would refuse its state" \
        "write $before in tailrack:cluster.name again, or give its jobs up: rm -r /var/lib/slurm/slurmctld on $HOST_NAME"
}

# A partition that a pool has brought, under a name that the cluster's config has taken since.
refuse_partitions_of_pools() {
    local path name
    for path in "$SLURM_POOLS"/*/slurm.conf; do
        [ -e "$path" ] || continue
        while read -r name; do
            ! grep -q "^PartitionName=$name " <<<"$SLURM_SLURM_CONF" || fail \
                "partition $name is that of the pool $(basename "$(dirname "$path")")" \
                "give the cluster's site or partition another name, or remove that pool first ('make down' of its stack)"
        done < <(sed -n 's/^PartitionName=\([^ ]*\) .*/\1/p' "$path")
    done
}

own_node_known() { scontrol show node "$HOST_NAME" >/dev/null 2>&1; }
own_node_deleted() { ! own_node_known || scontrol delete "nodename=$HOST_NAME"; }

# Where the head node runs no jobs no slurmd runs, whoever started one (an earlier config, an image, a package): to root of
# any machine that has Slurm's key, a slurmd is a way to root.
end_slurmd() {
    if own_node_known; then
        see_jobs_off "$HOST_NAME" "tailrack: runs no jobs any more" "$SLURM_JOB_LIMIT_SECONDS" ||
            note "jobs here neither ended nor went back to the queue; they end without slurmd"
    fi
    if [ -e /etc/systemd/system/tailrack-slurmd-watchdog.service ]; then systemctl disable -q --now tailrack-slurmd-watchdog; fi
    if systemctl cat slurmd >/dev/null 2>&1; then systemctl disable -q --now slurmd; fi
    rm -rf /etc/systemd/system/slurmd.service.d/tailrack{,-restart}.conf "${SLURM_NODES:?}/$HOST_NAME"
}

slurm_head() {
    refuse_another_cluster_name
    refuse_partitions_of_pools
    local offered=$STATE_DIR/slurm/offered
    # A release that was built here has made its account since.
    hold_ports
    set_slurm_of_others_aside
    give_slurm_state
    give_folder slurm 0755 /var/log/slurm
    rm -rf "$offered"
    # The last two by names without a path, so that slurmctld brings them to all nodes (src/common/fetch_config.c, 23.11 and
    # newer): no node can lack them, which would drain it at its first job.
    ensure_files \
        "$offered/slurm.conf" 0644 root:root "$SLURM_SLURM_CONF" \
        "$offered/gres.conf" 0644 root:root "$SLURM_GRES_CONF" \
        "$offered/topology.conf" 0644 root:root "$SLURM_TOPOLOGY_CONF" \
        "$offered/cgroup.conf" 0644 root:root "$SLURM_CGROUP_CONF" \
        "$offered/mpi.conf" 0644 root:root "$SLURM_MPI_CONF" \
        "$offered/job_submit.lua" 0644 root:root "$SLURM_JOB_SUBMIT_LUA" \
        "$offered/tailrack-prolog" 0644 root:root "$SLURM_PROLOG" \
        "$offered/tailrack-epilog" 0644 root:root "$SLURM_EPILOG"
    if [ "$HEAD_COMPUTES" = true ]; then write_slurm_node; else end_slurmd; fi
    keep_running slurmctld.service
    reload_units slurmctld.service tailrack-slurmctld-watchdog.service tailrack-slurm-room.service
    enable_units slurmctld.service tailrack-slurmctld-watchdog.service tailrack-slurm-room.service
    systemctl restart tailrack-slurmctld-watchdog tailrack-slurm-room
    offer_slurm_files "$offered" || fail "$REFUSED" \
        "correct tailrack:slurm.settings; 'journalctl -u slurmctld' on $HOST_NAME says more"
    [ "$HEAD_COMPUTES" = true ] || wait_until 60 own_node_deleted ||
        fail "Slurm keeps the head node among its nodes" "see 'scontrol show node $HOST_NAME' on $HOST_NAME"
    # From here on it is what members add to.
    rm -rf "$SLURM_BASE"
    mv "$offered" "$SLURM_BASE"
    # As it was called before version 0.1.
    retire tailrack-forget.timer tailrack-forget.service
    rm -f /usr/local/sbin/tailrack-forget
    ensure_file /usr/local/sbin/tailrack-expire 0755 root:root "$HEAD_EXPIRE_PROGRAM"
    enable_units --now tailrack-expire.timer
    result slurm_version "$(json_string "$(slurmctld -V | awk '{print $2}')")"
}
