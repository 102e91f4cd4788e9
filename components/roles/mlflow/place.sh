#!/bin/bash
# Where things of MLflow lie. Part of tailrack-leave and of a backup too, so it uses nothing of base.sh.

# The account that the server runs as, and its folder, with the database.
MLFLOW_USER=tailrack-mlflow
MLFLOW_DATA=/var/lib/tailrack-mlflow
# Root's, of the head node: users' passwords, and where on the share artifacts lie.
MLFLOW_KEPT=/var/lib/tailrack/mlflow
# Where it answers, in the share: there only while it does. On each node a link to that, which is what jobs are told by.
MLFLOW_PUBLISHED=.tailrack/mlflow-uri
MLFLOW_URI_FILE=/etc/tailrack/mlflow-uri
