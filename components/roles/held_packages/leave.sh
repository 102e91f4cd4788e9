#!/bin/bash
# Let the machine's owner upgrade its packages again.

held_packages_leave() {
    local folder
    rm -f /etc/apt/preferences.d/tailrack /etc/needrestart/conf.d/tailrack.conf
    # Keep the folders if needrestart is installed.
    for folder in /etc/needrestart/conf.d /etc/needrestart; do
        [ ! -d "$folder" ] || rmdir --ignore-fail-on-non-empty "$folder"
    done
}
