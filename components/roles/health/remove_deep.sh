#!/bin/bash
# uses: machine/retire
# The deep check ends. What it remembers of nodes stays for the day that it is wanted again.

remove_deep_check() {
    retire tailrack-deep-check.timer tailrack-deep-check.service
    rm -rf /usr/local/lib/tailrack/deep-check
    rm -f /usr/local/sbin/tailrack-deep-check /etc/tailrack/deep-check.json
}
