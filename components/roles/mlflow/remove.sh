#!/bin/bash
# uses: mlflow/place machine/retire
# The server and its program go; what was logged stays. Part of tailrack-leave too, so it uses nothing of base.sh.

remove_mlflow() {
    retire tailrack-mlflow.service
    rm -rf /etc/tailrack/mlflow /usr/local/lib/tailrack/mlflow-program
    rm -f /usr/local/lib/tailrack/mlflow-start /usr/local/lib/tailrack/mlflow-accounts /usr/local/lib/tailrack/backup.d/mlflow
}
