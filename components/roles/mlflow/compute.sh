#!/bin/bash
# uses: mlflow/place
# Where jobs find MLflow: task-prolog tells them. Whether it answers, no node waits for.
#
# MLFLOW_ENABLED
# MLFLOW_PORT    where it answers
# HEAD_ADDRESS   tailnet address of the head node

mlflow_compute() {
    if [ "$MLFLOW_ENABLED" = true ]; then
        ensure_file "$MLFLOW_URI_FILE" 0644 root:root "http://$HEAD_ADDRESS:$MLFLOW_PORT"
    else
        rm -f "$MLFLOW_URI_FILE"
    fi
}
