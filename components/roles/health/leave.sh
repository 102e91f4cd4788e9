#!/bin/bash
# uses: health/remove
# No script of ours runs any more.

health_leave() { remove_health; }
