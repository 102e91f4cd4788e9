"""Files and folders of data sets on the head node and on nodes, and their ports."""

from __future__ import annotations

from components.node.step.step import STATE_DIR

# The account that reads sources and owns the copies. It has no other rights.
ACCOUNT = "tailrack-data"
# rsync's port on the tailnet, and on the proven fabric.
PORT, FABRIC_PORT = 6814, 6815

STATE = f"{STATE_DIR}/data"
PASSWORD, SECRETS = f"{STATE}/password", f"{STATE}/secrets"
RSYNCD, MODULES = f"{STATE}/rsyncd.conf", f"{STATE}/modules"
# On the head node: its settings, lists of files at the sources, the plan for nodes, and the report for people.
SETTINGS = f"{STATE}/settings.json"
PLAN = f"{STATE}/plan"
PLAN_FILE = "plan.json"
FETCHED = f"{STATE}/fetched"
REPORT = f"{STATE}/report.json"
# On a node: a copy of the head node's plan, and the node's state for others.
FROM_HEAD = f"{STATE}/from-head"
HERE = f"{STATE}/state"
STATUS_FILE = "status.json"
FOLDERS = f"{STATE}/folders"
FEATURES = f"{STATE}/features"
MADE = f"{STATE}/made"
# Lists of the files of complete versions, with their sums.
LISTS = f"{STATE}/lists"
# The folder of a data set's versions is in this folder, beside the link to the present one.
VERSIONS = ".tailrack-data"

SOCKET, SERVER = "tailrack-data.socket", "tailrack-data@.service"
STAGE, STAGE_TIMER = "tailrack-data-stage.service", "tailrack-data-stage.timer"
HEAD, HEAD_TIMER = "tailrack-data-head.service", "tailrack-data-head.timer"
FILES_PROGRAM = "/usr/local/lib/tailrack/data-files"
STAGE_PROGRAM, HEAD_PROGRAM = "/usr/local/sbin/tailrack-data", "/usr/local/sbin/tailrack-data-head"
