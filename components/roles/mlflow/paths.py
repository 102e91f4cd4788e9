"""MLflow's paths and account."""

from __future__ import annotations

from components.node.step.step import STATE_DIR

UNIT = "tailrack-mlflow.service"
# The server's account, and its folder with the database.
ACCOUNT = "tailrack-mlflow"
DATA = "/var/lib/tailrack-mlflow"
# Root's folder on the head node: users' passwords, and the path of the artifacts on the share.
STATE = f"{STATE_DIR}/mlflow"
ARTIFACTS = f"{STATE}/artifacts"
# The file on the share with MLflow's address, which exists only while MLflow answers, and each node's link to it.
PUBLISHED = ".tailrack/mlflow-uri"
URI_FILE = "/etc/tailrack/mlflow-uri"
# Files that the server reads when it starts.
SETTINGS = "/etc/tailrack/mlflow"
PROGRAM = "/usr/local/lib/tailrack/mlflow-program"
START = "/usr/local/lib/tailrack/mlflow-start"
ACCOUNTS = "/usr/local/lib/tailrack/mlflow-accounts"
DUMP = "/usr/local/lib/tailrack/backup.d/mlflow"
