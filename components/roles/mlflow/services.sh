#!/bin/bash
# uses: mlflow/install mlflow/users mlflow/remove machine/daemon
# Run MLflow on the head node, if the config turns it on.
#
# MLFLOW_ENABLED
# MLFLOW_PORT                               its port
# MLFLOW_UNIT, MLFLOW_LOGIN, MLFLOW_START, MLFLOW_DUMP   texts of its unit, configuration, start program and backup script
# MLFLOW_START_VERSION                      changes with the start program, and restarts the server
# HEAD_ADDRESS, NODE_NAME                   tailnet address and name of this machine
# NFS_EXPORTS_PATH                          the share

# Run after all other services: the download takes a minute, and a failure of MLflow must not stop other services.
mlflow_services() {
    LATER+=(serve_mlflow)
    AT_END+=(withdraw_silent_mlflow)
}

# Write MLflow's address for jobs. At the end of the step, withdraw_silent_mlflow removes it if MLflow does not answer.
publish_mlflow() {
    install -d -m 0755 "$NFS_EXPORTS_PATH/.tailrack"
    ensure_file "$NFS_EXPORTS_PATH/$MLFLOW_PUBLISHED" 0644 root:root "http://$HEAD_ADDRESS:$MLFLOW_PORT"
}

withdraw_silent_mlflow() {
    if [ "$MLFLOW_ENABLED" = true ] && systemctl -q is-active tailrack-mlflow.service &&
        answers_http "$HEAD_ADDRESS" "$MLFLOW_PORT" /health; then return; fi
    rm -f "$NFS_EXPORTS_PATH/$MLFLOW_PUBLISHED"
}

serve_mlflow() {
    local unit=tailrack-mlflow.service answer_limit=600 artifacts=$NFS_EXPORTS_PATH/mlflow text=$MLFLOW_UNIT new_dump python
    if [ "$MLFLOW_ENABLED" != true ]; then
        remove_mlflow
        return
    fi
    # Checked before the download, which takes a minute.
    refuse_taken_port "$unit" "$HEAD_ADDRESS" "$MLFLOW_PORT" mlflow.port
    id -u "$MLFLOW_USER" >/dev/null 2>&1 || useradd --system --user-group --no-create-home --home-dir /nonexistent \
        --shell /usr/sbin/nologin "$MLFLOW_USER"
    create_credentials
    ensure_file "$MLFLOW_STATE/artifacts" 0600 root:root "$artifacts"
    own_folder "$MLFLOW_DATA"
    own_folder "$artifacts"
    install_mlflow
    # Installed before restore_mlflow moves the lost head node's database out of the folder that backups read, so that
    # the database stays in the backup even if MLflow does not start.
    CHANGED=
    ensure_file /usr/local/lib/tailrack/backup.d/mlflow 0755 root:root "$MLFLOW_DUMP"
    new_dump=$CHANGED
    ensure_file /usr/local/lib/tailrack/mlflow-start 0755 root:root "$MLFLOW_START"
    ensure_file /usr/local/lib/tailrack/mlflow-accounts 0755 root:root "$MLFLOW_ACCOUNTS"
    restore_mlflow
    update_accounts
    text=${text//@ARTIFACTS@/$artifacts}
    text=${text//@PROGRAM@/$MLFLOW_PROGRAM}
    python=$(readlink -f /usr/bin/python3)
    text=${text//@PYTHON@/$python}
    text=${text//@PYTHON_NAME@/${python##*/}}
    ensure_file /etc/systemd/system/tailrack-mlflow.service 0644 root:root "$text"
    install -d -m 0755 /etc/tailrack/mlflow
    ensure_file /etc/tailrack/mlflow/basic_auth.ini 0644 root:root "$MLFLOW_LOGIN"
    ensure_file /etc/tailrack/mlflow/environment 0644 root:root "ADDRESS=$HEAD_ADDRESS
PORT=$MLFLOW_PORT
NAME=$NODE_NAME
# mlflow-start $MLFLOW_START_VERSION"
    run_daemon "$unit" "$HEAD_ADDRESS" "$MLFLOW_PORT" /health mlflow.port "/etc/systemd/system/$unit" \
        /etc/tailrack/mlflow/{basic_auth.ini,environment} "$MLFLOW_PROGRAM/whole"
    publish_mlflow
    publish_credentials
    [ -z "$new_dump" ] || back_up_mlflow
}

# Back up now: this `up` made its backup before MLflow had a database, and the next one is an hour away.
back_up_mlflow() {
    [ -e /etc/systemd/system/tailrack-backup.service ] || return 0
    systemctl start tailrack-backup.service || note "MLflow is not in the backup yet: run 'tailrack-backup status' to see why"
}

# Set the owner again, because the account has another uid on a new machine.
own_folder() { give_folder "$MLFLOW_USER" 0700 "$1"; }

# Replace the database with the lost head node's from the backup.
restore_mlflow() {
    local dump=$STATE_DIR/dumps/mlflow.db
    [ -s "$dump" ] || return 0
    note "restoring MLflow's database of the lost head node"
    systemctl stop tailrack-mlflow.service 2>/dev/null || note "MLflow is not running"
    # Without the version file, the database is upgraded to the installed release.
    # shellcheck disable=SC2016  # of the account's bash
    as_user "$MLFLOW_USER" 900 65536 bash -euc 'umask 077; cat >"$1/mlflow.db.new"; rm -f "$1"/mlflow.db-* "$1/version"
        mv -fT "$1/mlflow.db.new" "$1/mlflow.db"' - "$MLFLOW_DATA" <"$dump" ||
        fail "cannot restore MLflow's database of the lost head node" \
            "free space in $MLFLOW_DATA on $HOST_NAME, or remove $dump to start with an empty database; then run up again"
    rm -f "$dump"
}
