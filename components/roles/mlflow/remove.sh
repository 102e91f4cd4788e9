#!/bin/bash
# uses: mlflow/paths machine/retire
# Remove the server and its program; the logged data stays. tailrack-leave contains this file too, so it uses nothing
# from base.sh.

remove_mlflow() {
    retire tailrack-mlflow.service
    rm -rf /etc/tailrack/mlflow /usr/local/lib/tailrack/mlflow-program
    rm -f /usr/local/lib/tailrack/mlflow-start /usr/local/lib/tailrack/mlflow-accounts /usr/local/lib/tailrack/backup.d/mlflow
}
