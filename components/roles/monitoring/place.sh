#!/bin/bash
# Where things of the monitoring lie. Part of tailrack-leave too, so it uses nothing of base.sh.

# Root's; node exporter reads what is in it with each answer.
METRICS_DIR=/var/lib/tailrack/metrics
