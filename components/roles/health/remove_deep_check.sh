#!/bin/bash
# uses: machine/retire
# Remove the benchmark check. Its records of nodes stay, in case the check is turned on again.

remove_deep_check() {
    retire tailrack-deep-check.timer tailrack-deep-check.service
    rm -rf /usr/local/lib/tailrack/deep-check
    rm -f /usr/local/sbin/tailrack-deep-check /etc/tailrack/deep-check.json
}
