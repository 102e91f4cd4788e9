#!/bin/bash
# uses: mlflow/paths
# Create the link from which task-prolog reads MLflow's address. The head node writes and removes the file behind the
# link, so no node waits for MLflow.
#
# MLFLOW_ENABLED
# NFS_EXPORTS_MOUNT   mount point of the share

mlflow_compute() {
    if [ "$MLFLOW_ENABLED" != true ]; then
        rm -f "$MLFLOW_URI_FILE"
        return
    fi
    mkdir -p "${MLFLOW_URI_FILE%/*}"
    [ "$(readlink "$MLFLOW_URI_FILE")" = "$NFS_EXPORTS_MOUNT/$MLFLOW_PUBLISHED" ] ||
        ln -sfnT "$NFS_EXPORTS_MOUNT/$MLFLOW_PUBLISHED" "$MLFLOW_URI_FILE"
}
