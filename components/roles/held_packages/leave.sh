#!/bin/bash
# The machine's packages are its owner's again.

held_packages_leave() {
    local folder
    rm -f /etc/apt/preferences.d/tailrack /etc/needrestart/conf.d/tailrack.conf
    # needrestart may have come since, or never been here.
    for folder in /etc/needrestart/conf.d /etc/needrestart; do
        [ ! -d "$folder" ] || rmdir --ignore-fail-on-non-empty "$folder"
    done
}
