#!/bin/bash
# uses: machine/retire
# slurmdbd and its database end. What it has of jobs stays. Part of tailrack-leave too, so it uses nothing of base.sh.

ACCOUNTING_DATA=/var/lib/slurm/accounting

# Whether the database has a job of anybody's; one that cannot be asked may have.
jobs_recorded() {
    local ask=(timeout 20 mariadb --no-defaults -N -B -S /run/tailrack-database/socket -u root) table
    [ -d "$ACCOUNTING_DATA/slurm_acct_db" ] || return 1
    table=$("${ask[@]}" -e "SELECT table_name FROM information_schema.tables WHERE table_schema = 'slurm_acct_db'
        AND table_name LIKE '%\\_job\\_table'") || return 0
    for table in $table; do
        [ "$("${ask[@]}" -e "SELECT 1 FROM slurm_acct_db.\`$table\` LIMIT 1")" != 1 ] || return 0
    done
    return 1
}

end_accounting() {
    [ -e /etc/systemd/system/tailrack-database.service ] || return 0
    retire_daemon slurmdbd
    # Nobody has used what nobody is in.
    if jobs_recorded; then
        echo "what jobs have used stays in $ACCOUNTING_DATA"
        retire tailrack-database.service
    else
        retire tailrack-database.service
        rm -rf "$ACCOUNTING_DATA"
    fi
    if grep -qsF 'Written by tailrack.' /etc/slurm/slurmdbd.conf; then rm -f /etc/slurm/slurmdbd.conf; fi
    rm -f /usr/local/lib/tailrack/backup.d/accounting /etc/tailrack/database.cnf /etc/systemd/system/slurmdbd.service.d/tailrack.conf \
        /etc/systemd/system/slurmctld.service.d/tailrack-accounting.conf
    rm -rf /var/lib/tailrack/accounting
    systemctl daemon-reload
}
