#!/bin/bash
# uses: mlflow/remove
# Remove MLflow and its account. The logged data stays, in folders that only root can enter, because another account may
# later get the uid of the server's account.

mlflow_leave() {
    local folder artifacts
    remove_mlflow
    rm -f "$MLFLOW_URI_FILE"
    artifacts=$(cat "$MLFLOW_STATE/artifacts" 2>/dev/null) || artifacts=
    [ -z "$artifacts" ] || rm -f "${artifacts%/*}/$MLFLOW_PUBLISHED"
    grep -qs "^$MLFLOW_USER:" /etc/passwd || return 0
    for folder in "$MLFLOW_DATA" "$artifacts"; do
        [ ! -d "$folder" ] || take_folder 0700 "$folder"
    done
    userdel "$MLFLOW_USER" || echo "the account $MLFLOW_USER stays because one of its processes is still running"
}
