#!/bin/bash
# uses: machine/retire
# The last step of leaving: remove all remaining files with the cluster's name, and list what stays in a file beside the
# logs.
#
# NODE_ADOPT   true if no logout from the tailnet follows, which otherwise removes the rest (tailnet/leave.sh)

LEFT=/var/log/tailrack/left

# Print the packages that the cluster installed and that are still installed, one a line.
remaining_packages() {
    local package
    [ -e /var/lib/tailrack/packages ] || return 0
    sort -u /var/lib/tailrack/packages | while read -r package; do
        if dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -x installed >/dev/null; then echo "$package"; fi
    done
}

list_remains() {
    local packages
    packages=$(remaining_packages)
    printf 'The cluster has left %s. Still here:\n' "$(cat /etc/hostname)"
    printf -- '- the logs of its steps, in /var/log/tailrack, and its scripts, in ~/.tailrack of the login that it used\n'
    printf -- "- on a head node, users' files: the directory of the share, owned by their uids\n"
    if [ -d /var/lib/slurm/accounting ]; then
        printf -- '- job usage, the database of Slurm'"'"'s accounting: /var/lib/slurm/accounting\n'
    fi
    if [ -d /var/lib/tailrack-mlflow ]; then
        printf -- '- the database of MLflow: /var/lib/tailrack-mlflow; its artifacts are on the share, in mlflow\n'
    fi
    if [ -d /var/lib/tailrack/backup ]; then
        printf -- '- files from before the cluster, which it moved away: /var/lib/tailrack/backup\n'
    fi
    if [ -n "$packages" ]; then
        printf -- '- packages, whose daemons do not start: apt-get autoremove --purge %s\n' "${packages//$'\n'/ }"
    fi
}

machine_leave() {
    local path remains kept="tailnet*"
    # Not on a second run, which finds less.
    if [ -e /var/lib/tailrack/node-name ]; then
        remains=$(list_remains)
        mkdir -p "${LEFT%/*}"
        printf '%s\n' "$remains" >"$LEFT"
    fi
    for path in /etc/systemd/system/tailrack-*; do [ ! -f "$path" ] || retire "${path##*/}"; done
    rm -f /etc/systemd/system/*.d/tailrack{,-restart}.conf
    # Folders that the cluster created for its files.
    find /etc/systemd/system /etc/systemd/resolved.conf.d /etc/exports.d -maxdepth 1 -name '*.d' -empty -delete 2>/dev/null || :
    find /usr/local/sbin -maxdepth 1 -name 'tailrack-*' ! -name tailrack-leave -delete
    rm -rf /usr/local/lib/tailrack /etc/tailrack
    if [ "$NODE_ADOPT" = true ]; then
        rm -f /usr/local/sbin/tailrack-leave
        kept=backup
    fi
    [ ! -d /var/lib/tailrack ] ||
        find /var/lib/tailrack -mindepth 1 -maxdepth 1 ! -name backup ! -name "$kept" -exec rm -rf {} +
    find /var/lib -maxdepth 1 -name tailrack -empty -delete
    systemctl daemon-reload
    systemctl reset-failed 'tailrack-*'
}
