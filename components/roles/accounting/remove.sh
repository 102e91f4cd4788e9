#!/bin/bash
# uses: accounting/paths machine/retire slurm/folder
# Remove slurmdbd and its database; a database with jobs stays. tailrack-leave contains this, so it uses nothing from
# base.sh.

# Succeed if the database has a job, or if it does not answer.
jobs_recorded() {
    local query=(as_database_user 20 65536 mariadb -N -B) table
    [ -d "$DATABASE_DIR/slurm_acct_db" ] || return 1
    table=$("${query[@]}" -e "SELECT table_name FROM information_schema.tables WHERE table_schema = 'slurm_acct_db'
        AND table_name LIKE '%\\_job\\_table'" </dev/null) || return 0
    for table in $table; do
        [ "$("${query[@]}" -e "SELECT 1 FROM slurm_acct_db.\`$table\` LIMIT 1" </dev/null)" != 1 ] || return 0
    done
    return 1
}

end_accounting() {
    local keep=no
    [ -e /etc/systemd/system/tailrack-database.service ] || return 0
    retire_daemon slurmdbd
    if jobs_recorded; then keep=yes; fi
    retire tailrack-database.service
    take_slurm_folder
    if [ "$keep" = yes ]; then echo "the accounting database stays in $DATABASE_DIR"; else rm -rf "$DATABASE_DIR"; fi
    if grep -qsF 'Written by tailrack.' /etc/slurm/slurmdbd.conf; then rm -f /etc/slurm/slurmdbd.conf; fi
    rm -f /usr/local/lib/tailrack/backup.d/accounting /etc/tailrack/database.cnf /etc/systemd/system/slurmdbd.service.d/tailrack.conf \
        /etc/systemd/system/slurmctld.service.d/tailrack-accounting.conf "$WITHOUT_EXEC"
    rm -rf /var/lib/tailrack/accounting
    systemctl daemon-reload
}
