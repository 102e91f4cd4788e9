#!/bin/bash
# uses: slurm/files accounting/slurmdbd
# Switch slurmctld's accounting on or off while jobs run. A reconfiguration starts a new process, which replaces the old
# one only after it has started: where accounting does not work the old one goes on.

ACCOUNTING_LINES=$SLURM_SERVICES/accounting/slurm.conf
CLUSTER_NAME_FILE=/var/lib/slurm/slurmctld/clustername

# Register steps of nodes reconfigure slurmctld too. Optional services have a separate lock.
take_files_lock() {
    exec 8>"$PRIVATE_DIR/tailrack.lock"
    flock -w "$LOCK_WAIT" 8 || fail "another step has held $PRIVATE_DIR/tailrack.lock for ${LOCK_WAIT}s" \
        "see 'fuser -v $PRIVATE_DIR/tailrack.lock' on $HOST_NAME"
}
release_files_lock() { exec 8>&-; }

uses_slurmdbd() { scontrol show config | grep '^AccountingStorageType *= *accounting_storage/slurmdbd' >/dev/null; }

# A slurmctld that started without slurmdbd has given the cluster a number. If slurmdbd's number is another one, it
# always exits with CLUSTER ID MISMATCH (before 25.11; src/slurmctld/controller.c). Without a number it takes
# slurmdbd's.
remove_cluster_number() {
    as_user slurm 10 4096 sed -i 's/|.*//' "$CLUSTER_NAME_FILE" </dev/null
}

saved_cluster_name() { read_theirs "$CLUSTER_NAME_FILE" 2>/dev/null || :; }
cluster_has_number() { [[ $(saved_cluster_name) == *"|"* ]]; }

cluster_registered() { accounting_command -nP show cluster format=Cluster,ControlHost | grep -E '^[^|]+\|[0-9]' >/dev/null; }

# Reconfigure slurmctld with accounting_lines $1.
take_accounting() {
    local old_name='' lines attempts=3
    lines=$(accounting_lines "$1")
    take_files_lock
    if ! uses_slurmdbd; then old_name=$(saved_cluster_name); fi
    while true; do
        [ -z "$old_name" ] || remove_cluster_number
        ensure_file "$ACCOUNTING_LINES" 0644 root:root "$lines"
        if offer_slurm_files "$SLURM_BASE" slurm.conf; then break; fi
        # A new node reconfigures slurmctld too. If it did so just now, slurmctld has given the cluster a number again.
        if [ "$((attempts -= 1))" -gt 0 ] && [ -n "$old_name" ] && cluster_has_number; then
            note "slurmctld was reconfigured for a node meanwhile; trying again"
            continue
        fi
        [ -z "$old_name" ] || rm -rf "${ACCOUNTING_LINES%/*}"
        [ "$old_name" = "${old_name#*|}" ] || cluster_has_number ||
            as_user slurm 10 4096 sed -i "1s/\$/|${old_name#*|}/" "$CLUSTER_NAME_FILE" </dev/null
        fail "$REFUSED" "see its message above and 'journalctl -u slurmctld -u slurmdbd' on $HOST_NAME"
    done
    release_files_lock
    # If slurmdbd was down when slurmctld started, as after an upgrade of both, slurmctld connects at its next message
    # or within five minutes (PERIODIC_NODE_ACCT in src/slurmctld/controller.c). A reconfigured one connects at once.
    wait_until 10 cluster_registered || scontrol reconfigure || note "slurmctld refuses its configuration"
    wait_until 60 cluster_registered || fail "slurmctld does not register with slurmdbd" \
        "see 'journalctl -u slurmctld -u slurmdbd' on $HOST_NAME, then run up again"
}

leave_slurmdbd() {
    [ -e "$ACCOUNTING_LINES" ] || return 0
    take_files_lock
    rm -rf "${ACCOUNTING_LINES%/*}"
    offer_slurm_files "$SLURM_BASE" slurm.conf || fail "$REFUSED" "see 'journalctl -u slurmctld' on $HOST_NAME"
    release_files_lock
}
