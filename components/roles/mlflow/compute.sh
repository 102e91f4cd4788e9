#!/bin/bash
# uses: mlflow/place
# Where jobs find MLflow: task-prolog tells them. Whether it answers, no node waits for: the head node writes the file that this
# link leads to, and takes it away.
#
# MLFLOW_ENABLED
# NFS_EXPORTS_MOUNT   the share, where it is mounted

mlflow_compute() {
    if [ "$MLFLOW_ENABLED" != true ]; then
        rm -f "$MLFLOW_URI_FILE"
        return
    fi
    mkdir -p "${MLFLOW_URI_FILE%/*}"
    [ "$(readlink "$MLFLOW_URI_FILE")" = "$NFS_EXPORTS_MOUNT/$MLFLOW_PUBLISHED" ] ||
        ln -sfnT "$NFS_EXPORTS_MOUNT/$MLFLOW_PUBLISHED" "$MLFLOW_URI_FILE"
}
