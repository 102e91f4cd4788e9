#!/bin/bash
# uses: health/remove health/remove_deep_check
# Remove tailrack's scripts and checks from a machine that leaves.

health_leave() {
    remove_deep_check
    remove_health
}
