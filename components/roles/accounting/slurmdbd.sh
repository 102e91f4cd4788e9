#!/bin/bash
# uses: accounting/place foreign_cluster/foreign slurm/files
# slurmdbd, which is the database's only client, and Slurm's only way to it. It comes and goes without slurmctld, which keeps
# meanwhile what it has to tell.
#
# HEAD_ADDRESS        tailnet address of this machine
# ACCOUNTING_PURGE    `key months`, one a line: what is forgotten, and when
# ACCOUNTING_CONF     lines of slurm.conf

# slurm.conf as it is with accounting; before the controller has taken that, commands here would know of none.
WITH_ACCOUNTING=$STATE_DIR/accounting/slurm.conf
# Seconds for slurmdbd to answer: it makes its tables first, or those of a new release of the ones before.
DBD_LIMIT=300

# Lines of slurm.conf for accounting: word `enforced` where a job needs an account. A key that the cluster's own slurm.conf has
# stays as it is.
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

set_accounting_of_others_aside() {
    local path=/etc/slurm/slurmdbd.conf
    if [ ! -e "$path" ] || grep -qF 'Written by tailrack.' "$path"; then return 0; fi
    systemctl stop slurmdbd || note "no slurmdbd is here"
    set_aside "$path"
}

# Have slurmdbd run with its files as they are. A step that was cut off after it wrote them has left one that can run programs.
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
# The address of this machine's name, which is the tailnet's, and no other.
CommunicationParameters=NoInAddrAny
PidFile=/run/slurmdbd/slurmdbd.pid
StorageType=accounting_storage/mysql
# By the database's socket, as the account that it runs as: there is no password.
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db$purge"
    ensure_file /etc/systemd/system/slurmdbd.service.d/tailrack.conf 0644 root:root "[Unit]
After=munge.service tailrack-database.service tailrack-tailnet.service tailrack-names.service
Wants=munge.service
Requires=tailrack-names.service
# It ends with its database, which starts it again: one without answers slurmctld with errors, and a slurmctld that keeps limits
# ends by them (slurmdbd_agent.c, \"You need to add this cluster\"). Nobody at all is no error to it.
BindsTo=tailrack-database.service
# For as long as the database is away it is tried again.
StartLimitIntervalSec=0

[Service]
# Nobody waits for it, however long its tables take.
Type=simple
User=slurm
Group=slurm
RuntimeDirectory=slurmdbd
Environment=MYSQL_UNIX_PORT=$DATABASE_SOCKET
ExecStart=
# A request with the munge key, which every node has, may name a program to run and a folder to write to (\`sacctmgr archive\`).
# slurmdbd can run no program, write only in /run/slurmdbd and its own /tmp, and not see the files of slurmctld and the database.
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
# Not after it: slurmctld begins with what it has kept, however long a database takes.
Wants=slurmdbd.service"
    reload_units slurmdbd.service
    enable_units slurmdbd.service
    run_slurmdbd
    ensure_file "$WITH_ACCOUNTING" 0644 root:root "$(grep -vi '^AccountingStorage' "$SLURM_DIR/slurm.conf")
$(accounting_lines "" | grep '^AccountingStorage')"
    wait_until "$DBD_LIMIT" dbd_answers || fail "slurmdbd does not answer" \
        "see 'journalctl -u slurmdbd -u tailrack-database' on $HOST_NAME: it may still be at work on its tables; then run up again"
}
