#!/bin/bash
# uses: mlflow/remove
# What was logged stays, in folders that root alone can enter: the number of the server's account may be another one's tomorrow.

mlflow_leave() {
    local folder artifacts
    remove_mlflow
    rm -f "$MLFLOW_URI_FILE"
    artifacts=$(cat "$MLFLOW_KEPT/artifacts" 2>/dev/null) || artifacts=
    [ -z "$artifacts" ] || rm -f "${artifacts%/*}/$MLFLOW_PUBLISHED"
    grep -qs "^$MLFLOW_USER:" /etc/passwd || return 0
    for folder in "$MLFLOW_DATA" "$artifacts"; do
        [ ! -d "$folder" ] || take_folder 0700 "$folder"
    done
    userdel "$MLFLOW_USER" || echo "the account $MLFLOW_USER stays: something of it runs still"
}
