#!/bin/bash
# uses: machine/retire
# Remove everything that role health installed on a machine.

LIB=/usr/local/lib/tailrack

remove_health() {
    retire tailrack-reason.service
    rm -rf "$LIB"/{prolog,epilog}.d "$LIB/gpus-in-use" /usr/local/sbin/tailrack-{checks,nhc} /etc/tailrack/share-mounted \
        /run/tailrack/{unhealthy,verdict.json,last-failure.json} /run/tailrack-private/jobs{,.lock} /var/lib/tailrack/health
}
