"""Folders of tailrack on a machine."""

# Records of what tailrack made on this machine, and logs of steps.
STATE_DIR = "/var/lib/tailrack"
LOG_DIR = "/var/log/tailrack"
