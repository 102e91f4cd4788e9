#!/bin/bash
# uses: munge/cluster_keys
# Report a munge key of another cluster, with which this machine could not talk to its present cluster.

munge_check() { if foreign_munge_key; then found_foreign "a munge key ($MUNGE_FILE)"; fi; }
