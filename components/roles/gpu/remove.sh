#!/bin/bash
# What role gpu has put on a machine, taken away; the driver and its daemons stay.

remove_roce_unit() {
    if [ ! -e /etc/systemd/system/tailrack-roce.service ]; then return 0; fi
    systemctl disable -q --now tailrack-roce.service
    rm -f /etc/systemd/system/tailrack-roce.service /usr/local/sbin/tailrack-roce
    systemctl daemon-reload
}

remove_gpu_units() {
    if [ ! -e /etc/systemd/system/tailrack-gpu.service ]; then return 0; fi
    systemctl disable -q --now tailrack-gpu.service
    [ ! -e /etc/systemd/system/tailrack-health.timer ] || systemctl disable -q --now tailrack-health.timer
    rm -f /etc/systemd/system/tailrack-{gpu.service,health.service,health.timer} \
        /usr/local/sbin/tailrack-{gpu,health} /run/tailrack/health.json
    systemctl daemon-reload
}
