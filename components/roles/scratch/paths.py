"""Files of role scratch on a node."""

from components.node.step.step import STATE_DIR

# First line: the present parent of jobs' folders, empty without one; then former parents that may still contain some.
SCRATCH = "/etc/tailrack/scratch"
# The same for the parents of users' cache folders, which are named by uid.
CACHES = "/etc/tailrack/scratch-caches"
# One line: the days and percents of caches.
LIMITS = "/etc/tailrack/scratch-limits"
# Folders that the role created, one per line.
MADE = f"{STATE_DIR}/scratch-made"

CLEAN = "/usr/local/lib/tailrack/scratch-clean"
