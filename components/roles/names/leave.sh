#!/bin/bash
# The machine is called as it was before, and its file of names is its own again.

names_leave() {
    systemctl disable -q --now tailrack-names-follow.service tailrack-names.service
    rm -f /etc/cloud/cloud.cfg.d/99-tailrack.cfg
    /usr/local/sbin/tailrack-names forget
}
