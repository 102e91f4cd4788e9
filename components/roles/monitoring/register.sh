#!/bin/bash
# Remove a member's scrape target (target.py), for the program that removes expired nodes (slurm/expire.sh).
#
# NODE_NAME

monitoring_register_forget() { rm -f "/var/lib/tailrack/monitoring/targets/$NODE_NAME.json"; }
