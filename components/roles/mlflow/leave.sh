#!/bin/bash
# uses: mlflow/remove
# What was logged stays, root's alone, as the number of the server's account may be another one's tomorrow.

mlflow_leave() {
    local folder
    remove_mlflow
    rm -f "$MLFLOW_URI_FILE"
    grep -qs "^$MLFLOW_USER:" /etc/passwd || return 0
    for folder in "$MLFLOW_DATA" "$(cat "$MLFLOW_KEPT/artifacts" 2>/dev/null)"; do
        [ ! -d "$folder" ] || chown -hR root:root "$folder"
    done
    userdel "$MLFLOW_USER" || echo "the account $MLFLOW_USER stays: something of it runs still"
}
