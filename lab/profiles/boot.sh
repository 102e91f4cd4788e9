#!/bin/sh
# First process of a machine that looks like a real one; systemd takes over from it.
#
# Docker mounts its own /etc/hostname, /etc/hosts and /etc/resolv.conf over a container's. A real machine's tools replace
# these files, and replacing a mount fails. So Docker's content is copied once, and its mounts go at every start.
set -eu

name=$(hostname)
resolver=$(cat /etc/resolv.conf)
for file in hostname hosts resolv.conf; do umount "/etc/$file"; done
# At a later start resolv.conf is a link, and Docker has mounted its own where that points.
rm -rf /run/systemd

if [ ! -s /etc/hostname ]; then
    echo "$name" >/etc/hostname
    printf '127.0.0.1\tlocalhost\n127.0.1.1\t%s\n' "$name" >/etc/hosts
    if [ -x /usr/lib/systemd/systemd-resolved ]; then
        ln -sf ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf
    else
        echo "$resolver" >/etc/resolv.conf
        chmod 0644 /etc/resolv.conf
    fi
    chmod 0644 /etc/hostname /etc/hosts
fi
mount --make-rshared / && exec /lib/systemd/systemd  # as systemd does itself outside containers
