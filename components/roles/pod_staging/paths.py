"""Paths of role pod_staging."""

from __future__ import annotations

from components.node.state import STATE_DIR
from components.roles.slurm.paths import STAGE_IN, STAGE_OUT

# On the head node: a file for each node that is a pod, and one for each job whose folder is on a pod.
PODS = f"{STATE_DIR}/pods"
RECORDS = f"{STATE_DIR}/pod-staging"
# Root's service, which slurmctld's programs ask.
SOCKET = "/run/tailrack-pod-staging.sock"
PROGRAM = "/usr/local/lib/tailrack/pod-staging"
UNITS = ("tailrack-pod-staging.socket", "tailrack-pod-staging@.service")
# The program that rsync runs in place of ssh.
LINK = "/usr/local/lib/tailrack/pod-link"
ON_HEAD = (STAGE_IN, STAGE_OUT, PROGRAM, LINK)
# The request that a pod answers.
REQUEST = "pod-files"
# On a pod: the program that ends steps which a restart of tailscaled has cut off.
CUT_OFF = "/usr/local/lib/tailrack/pod-cut-off"
