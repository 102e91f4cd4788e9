#!/bin/bash
# uses: health/remove health/remove_deep
# No script of ours runs any more.

health_leave() {
    remove_deep_check
    remove_health
}
