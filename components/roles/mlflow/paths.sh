#!/bin/bash
# MLflow's paths and account. tailrack-leave and the backup contain this file too, so it uses nothing from base.sh.

# The server's account, and its folder with the database.
MLFLOW_USER=tailrack-mlflow
MLFLOW_DATA=/var/lib/tailrack-mlflow
# Root's folder on the head node: users' passwords, and the path of the artifacts on the share.
MLFLOW_STATE=/var/lib/tailrack/mlflow
# The file on the share with MLflow's address, which exists only while MLflow answers, and each node's link to it.
MLFLOW_PUBLISHED=.tailrack/mlflow-uri
MLFLOW_URI_FILE=/etc/tailrack/mlflow-uri
