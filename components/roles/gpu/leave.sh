#!/bin/bash
# Nothing of ours starts at the next boot.

gpu_leave() {
    if [ ! -e /etc/systemd/system/tailrack-gpu.service ]; then return 0; fi
    systemctl disable -q tailrack-gpu.service
    rm -f /etc/systemd/system/tailrack-gpu.service
    systemctl daemon-reload
}
