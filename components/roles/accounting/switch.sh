#!/bin/bash
# uses: slurm/files accounting/slurmdbd
# slurmctld begins to keep its books with slurmdbd, or ends to, while jobs run. A reconfiguration is a new process that takes the
# place of the old one when it has come up, and not before: where accounting is not to be had the old one goes on.

ACCOUNTING_LINES=$SLURM_SERVICES/accounting/slurm.conf
CLUSTER_NAME_FILE=/var/lib/slurm/slurmctld/clustername

# Members' steps have slurmctld take its files too. The lock of services is another one.
take_files_lock() {
    exec 8>"$PRIVATE_DIR/tailrack.lock"
    flock -w "$LOCK_WAIT" 8 || fail "another step has held $PRIVATE_DIR/tailrack.lock for ${LOCK_WAIT}s" \
        "see 'fuser -v $PRIVATE_DIR/tailrack.lock' on $HOST_NAME"
}
give_files_lock_back() { exec 8>&-; }

keeps_books() { scontrol show config | grep '^AccountingStorageType *= *accounting_storage/slurmdbd' >/dev/null; }

# A controller that began without slurmdbd has given the cluster a number of its own, and ends for ever with CLUSTER ID MISMATCH
# where slurmdbd has given it another one (before 25.11; src/slurmctld/controller.c). Without one it takes slurmdbd's.
without_cluster_number() {
    as_user slurm 10 4096 sed -i 's/|.*//' "$CLUSTER_NAME_FILE" </dev/null
}

cluster_name_kept() { read_theirs "$CLUSTER_NAME_FILE" 2>/dev/null || :; }
cluster_has_number() { [[ $(cluster_name_kept) == *"|"* ]]; }

cluster_registered() { accounting_command -nP show cluster format=Cluster,ControlHost | grep -E '^[^|]+\|[0-9]' >/dev/null; }

# Have slurmctld take lines; `enforced` or nothing.
take_accounting() {
    local before='' lines tries=3
    lines=$(accounting_lines "$1")
    take_files_lock
    if ! keeps_books; then before=$(cluster_name_kept); fi
    while true; do
        [ -z "$before" ] || without_cluster_number
        ensure_file "$ACCOUNTING_LINES" 0644 root:root "$lines"
        if offer_slurm_files "$SLURM_BASE" slurm.conf; then break; fi
        # Nodes that come have slurmctld read its files too: one that did so in this moment has had it give the cluster a
        # number again.
        if [ "$((tries -= 1))" -gt 0 ] && [ -n "$before" ] && cluster_has_number; then
            note "slurmctld had begun anew for a node meanwhile; once more"
            continue
        fi
        [ -z "$before" ] || rm -rf "${ACCOUNTING_LINES%/*}"
        [ "$before" = "${before#*|}" ] || cluster_has_number ||
            as_user slurm 10 4096 sed -i "1s/\$/|${before#*|}/" "$CLUSTER_NAME_FILE" </dev/null
        fail "$REFUSED" "see what it says above; 'journalctl -u slurmctld -u slurmdbd' on $HOST_NAME says more"
    done
    give_files_lock_back
    # One that began while slurmdbd was away, as after another release of both, comes when it has something to say, or within five
    # minutes (PERIODIC_NODE_ACCT in src/slurmctld/controller.c). One that begins anew comes at once.
    wait_until 10 cluster_registered || scontrol reconfigure || note "slurmctld refuses its configuration"
    wait_until 60 cluster_registered || fail "slurmctld does not come to slurmdbd" \
        "see 'journalctl -u slurmctld -u slurmdbd' on $HOST_NAME, then run up again"
}

end_books() {
    [ -e "$ACCOUNTING_LINES" ] || return 0
    take_files_lock
    rm -rf "${ACCOUNTING_LINES%/*}"
    offer_slurm_files "$SLURM_BASE" slurm.conf || fail "$REFUSED" "'journalctl -u slurmctld' on $HOST_NAME says more"
    give_files_lock_back
}
