#!/bin/bash
# uses: accounting/paths foreign_cluster/foreign slurm/files
# slurmdbd, the only client of the database. slurmctld works without it and queues its records meanwhile.
#
# HEAD_ADDRESS        tailnet address of this machine
# ACCOUNTING_PURGE    `key months`, one a line: the records to purge and their age
# ACCOUNTING_CONF     lines of slurm.conf

# A slurm.conf with accounting, for sacctmgr before slurmctld has taken those lines.
WITH_ACCOUNTING=$STATE_DIR/accounting/slurm.conf
# Seconds for slurmdbd to answer: it first creates its tables, or converts those of an older release.
DBD_LIMIT=300

# Print the lines of slurm.conf for accounting; with `enforced`, jobs need an account. A key that the cluster's
# slurm.conf contains keeps its value.
accounting_lines() {
    local line
    while read -r line; do
        grep -qi "^${line%%=*}=" "$SLURM_BASE/slurm.conf" || printf '%s\n' "$line"
    done <<<"AccountingStorageHost=$HEAD_ADDRESS
$ACCOUNTING_CONF${1:+
AccountingStorageEnforce=associations,limits,qos}"
}

accounting_command() { SLURM_CONF=$WITH_ACCOUNTING timeout 60 sacctmgr "$@"; }
dbd_answers() { accounting_command -nP show cluster format=Cluster >/dev/null; }

set_foreign_slurmdbd_aside() {
    local path=/etc/slurm/slurmdbd.conf
    if [ ! -e "$path" ] || grep -qF 'Written by tailrack.' "$path"; then return 0; fi
    systemctl stop slurmdbd || note "slurmdbd is not running"
    set_aside "$path"
}

# Restart slurmdbd if its files changed, or if it has no seccomp filter: a step that was cut off may have left it
# running so.
run_slurmdbd() {
    local process
    process=$(systemctl show -P MainPID slurmdbd)
    if [ -n "$CHANGED" ] || ! grep -qsE '^Seccomp:\s+2$' "/proc/$process/status"; then systemctl restart slurmdbd; fi
}

start_slurmdbd() {
    local purge='' key months
    while read -r key months; do [ -z "$key" ] || purge+=$'\n'"$key=${months}months"; done <<<"$ACCOUNTING_PURGE"
    CHANGED=
    ensure_file /etc/slurm/slurmdbd.conf 0600 slurm:slurm "# Written by tailrack.
AuthType=auth/munge
SlurmUser=slurm
DbdHost=$HOST_NAME
# Listen only on the address of this machine's name, which is its tailnet address.
CommunicationParameters=NoInAddrAny
PidFile=/run/slurmdbd/slurmdbd.pid
StorageType=accounting_storage/mysql
# Connect by the socket as the server's own account: there is no password.
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db$purge"
    ensure_file /etc/systemd/system/slurmdbd.service.d/tailrack.conf 0644 root:root "[Unit]
After=munge.service tailrack-database.service tailrack-tailnet.service tailrack-names.service
Wants=munge.service
Requires=tailrack-names.service
# Stop with the database, which starts slurmdbd again. Without its database slurmdbd answers errors, at which a
# slurmctld that enforces limits exits (slurmdbd_agent.c, \"You need to add this cluster\"). An absent slurmdbd is no
# error.
BindsTo=tailrack-database.service
# Retry for as long as the database is down.
StartLimitIntervalSec=0

[Service]
# No unit waits until the tables are converted.
Type=simple
User=slurm
Group=slurm
RuntimeDirectory=slurmdbd
Environment=MYSQL_UNIX_PORT=$DATABASE_SOCKET
ExecStart=
# A request with the munge key, which every node has, can name a program to run and a folder to write to (\`sacctmgr
# archive\`). So slurmdbd cannot run programs, writes only to /run/slurmdbd and its private /tmp, and does not see the
# files of slurmctld and the database.
ExecStart=/usr/bin/python3 -I $WITHOUT_EXEC /usr/sbin/slurmdbd -D -s
Restart=always
RestartSec=2
CapabilityBoundingSet=
NoNewPrivileges=yes
ProtectSystem=strict
ReadOnlyPaths=/run -/dev/shm -/dev/mqueue
ProtectHome=yes
InaccessiblePaths=-/var/lib/slurm -/var/lib/tailrack
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictSUIDSGID=yes
LockPersonality=yes"
    ensure_file /etc/systemd/system/slurmctld.service.d/tailrack-accounting.conf 0644 root:root "[Unit]
# No After=: slurmctld starts from its saved state, however long the database takes.
Wants=slurmdbd.service"
    reload_units slurmdbd.service
    enable_units slurmdbd.service
    run_slurmdbd
    ensure_file "$WITH_ACCOUNTING" 0644 root:root "$(grep -vi '^AccountingStorage' "$SLURM_DIR/slurm.conf")
$(accounting_lines "" | grep '^AccountingStorage')"
    wait_until "$DBD_LIMIT" dbd_answers || fail "slurmdbd does not answer" \
        "see 'journalctl -u slurmdbd -u tailrack-database' on $HOST_NAME (it may still be converting its tables), then run up again"
}
