#!/bin/bash
# Paths of monitoring. tailrack-leave contains this file too, so it uses nothing from base.sh.

# A folder of root's. Node exporter reads its files for each answer.
METRICS_DIR=/var/lib/tailrack/metrics
