#!/bin/bash
# uses: mlflow/install mlflow/users mlflow/remove machine/daemon
# MLflow on the head node, where the config asks for it.
#
# MLFLOW_ENABLED
# MLFLOW_PORT                               where it answers
# MLFLOW_UNIT, MLFLOW_LOGIN, MLFLOW_START, MLFLOW_DUMP   texts of its unit, its configuration, what starts it, and what saves it
# HEAD_ADDRESS, NODE_NAME                   tailnet address and name of this machine
# NFS_EXPORTS_PATH                          the share

# After all other services: fetching takes a minute, and what keeps MLflow away keeps nothing else away.
mlflow_services() {
    LATER+=(serve_mlflow)
    AT_END+=(withdraw_silent_mlflow)
}

# Jobs are told of a server that answers. However this step ends, they are not told of one that does not.
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
    local unit=tailrack-mlflow.service answer_limit=600 artifacts=$NFS_EXPORTS_PATH/mlflow text=$MLFLOW_UNIT saved python
    if [ "$MLFLOW_ENABLED" != true ]; then
        remove_mlflow
        return
    fi
    # Before a minute's work.
    refuse_taken_port "$unit" "$HEAD_ADDRESS" "$MLFLOW_PORT" mlflow.port
    id -u "$MLFLOW_USER" >/dev/null 2>&1 || useradd --system --user-group --no-create-home --home-dir /nonexistent \
        --shell /usr/sbin/nologin "$MLFLOW_USER"
    keep_credentials
    ensure_file "$MLFLOW_KEPT/artifacts" 0600 root:root "$artifacts"
    own_folder "$MLFLOW_DATA"
    own_folder "$artifacts"
    install_mlflow
    # Before the database of a lost head node leaves the folder that backups take it from: also where MLflow does not come up.
    CHANGED=
    ensure_file /usr/local/lib/tailrack/backup.d/mlflow 0755 root:root "$MLFLOW_DUMP"
    saved=$CHANGED
    ensure_file /usr/local/lib/tailrack/mlflow-start 0755 root:root "$MLFLOW_START"
    ensure_file /usr/local/lib/tailrack/mlflow-accounts 0755 root:root "$MLFLOW_ACCOUNTS"
    restore_mlflow
    bring_accounts
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
NAME=$NODE_NAME"
    run_daemon "$unit" "$HEAD_ADDRESS" "$MLFLOW_PORT" /health mlflow.port "/etc/systemd/system/$unit" \
        /etc/tailrack/mlflow/{basic_auth.ini,environment} /usr/local/lib/tailrack/mlflow-start "$MLFLOW_PROGRAM/whole"
    publish_mlflow
    give_credentials
    [ -z "$saved" ] || save_mlflow
}

# The backup of this `up` was made before there was anything of MLflow's to save; the next one is an hour away.
save_mlflow() {
    [ -e /etc/systemd/system/tailrack-backup.service ] || return 0
    systemctl start tailrack-backup.service || note "MLflow is not in the backup yet: 'tailrack-backup status' says why"
}

# Its account has another number on a new machine.
own_folder() { give_folder "$MLFLOW_USER" 0700 "$1"; }

# What a lost head node's MLflow knew, of its backup: it replaces the database whole.
restore_mlflow() {
    local dump=$STATE_DIR/dumps/mlflow.db
    [ -s "$dump" ] || return 0
    note "reading MLflow's database of the lost head node"
    systemctl stop tailrack-mlflow.service 2>/dev/null || note "no MLflow runs here"
    # Its release is not known any more: it is brought to this one.
    # shellcheck disable=SC2016  # of the account's bash
    as_user "$MLFLOW_USER" 900 65536 bash -euc 'umask 077; cat >"$1/mlflow.db.new"; rm -f "$1"/mlflow.db-* "$1/version"
        mv -fT "$1/mlflow.db.new" "$1/mlflow.db"' - "$MLFLOW_DATA" <"$dump" ||
        fail "MLflow's database of the lost head node cannot be put in place" \
            "make room in $MLFLOW_DATA on $HOST_NAME, or remove $dump to begin with an empty one; then run up again"
    rm -f "$dump"
}
