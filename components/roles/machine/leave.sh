#!/bin/bash
# uses: machine/retire
# Last of all: what is called by the cluster's name and still here, whoever has put it there. What stays is said in a file
# beside the logs.
#
# NODE_ADOPT   true where no log-out from the tailnet follows, which takes the rest along (tailnet/leave.sh)

LEFT=/var/log/tailrack/left

# Packages that came with the cluster and are here, one a line.
packages_left() {
    local package
    [ -e /var/lib/tailrack/packages ] || return 0
    sort -u /var/lib/tailrack/packages | while read -r package; do
        if dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -x installed >/dev/null; then echo "$package"; fi
    done
}

what_stays() {
    local packages
    packages=$(packages_left)
    printf 'The cluster has left %s. What stays:\n' "$(cat /etc/hostname)"
    printf -- '- the logs of its steps, in /var/log/tailrack, and the scripts, in ~/.tailrack of the login that it came by\n'
    printf -- "- on a head node, people's files: the directory of the share, under the numbers of their accounts\n"
    if [ -d /var/lib/slurm/accounting ]; then
        printf -- '- what jobs have used, the database of Slurm'"'"'s accounting: /var/lib/slurm/accounting\n'
    fi
    if [ -d /var/lib/tailrack-mlflow ]; then
        printf -- '- what was logged at MLflow, its database: /var/lib/tailrack-mlflow; its artifacts are on the share, in mlflow\n'
    fi
    if [ -d /var/lib/tailrack/backup ]; then printf -- '- what was here before and in its way: /var/lib/tailrack/backup\n'; fi
    if [ -n "$packages" ]; then
        printf -- '- packages; nothing of them starts: apt-get autoremove --purge %s\n' "${packages//$'\n'/ }"
    fi
}

machine_leave() {
    local path said keep="tailnet*"
    # A leaving that is done again finds less.
    if [ -e /var/lib/tailrack/node-name ]; then
        said=$(what_stays)
        mkdir -p "${LEFT%/*}"
        printf '%s\n' "$said" >"$LEFT"
    fi
    for path in /etc/systemd/system/tailrack-*; do [ ! -f "$path" ] || retire "${path##*/}"; done
    rm -f /etc/systemd/system/*.d/tailrack{,-restart}.conf
    # Folders that a file of the cluster's was the first in.
    find /etc/systemd/system /etc/systemd/resolved.conf.d /etc/exports.d -maxdepth 1 -name '*.d' -empty -delete 2>/dev/null || :
    find /usr/local/sbin -maxdepth 1 -name 'tailrack-*' ! -name tailrack-leave -delete
    rm -rf /usr/local/lib/tailrack /etc/tailrack
    if [ "$NODE_ADOPT" = true ]; then
        rm -f /usr/local/sbin/tailrack-leave
        keep=backup
    fi
    [ ! -d /var/lib/tailrack ] ||
        find /var/lib/tailrack -mindepth 1 -maxdepth 1 ! -name backup ! -name "$keep" -exec rm -rf {} +
    find /var/lib -maxdepth 1 -name tailrack -empty -delete
    systemctl daemon-reload
    systemctl reset-failed 'tailrack-*'
}
