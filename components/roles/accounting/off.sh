#!/bin/bash
# uses: accounting/place machine/retire slurm/folder
# slurmdbd and its database end. What it has of jobs stays. Part of tailrack-leave too, so it uses nothing of base.sh.

# Whether the database has a job of anybody's; one that cannot be asked may have.
jobs_recorded() {
    local ask=(as_database_user 20 65536 mariadb -N -B) table
    [ -d "$DATABASE_DIR/slurm_acct_db" ] || return 1
    table=$("${ask[@]}" -e "SELECT table_name FROM information_schema.tables WHERE table_schema = 'slurm_acct_db'
        AND table_name LIKE '%\\_job\\_table'" </dev/null) || return 0
    for table in $table; do
        [ "$("${ask[@]}" -e "SELECT 1 FROM slurm_acct_db.\`$table\` LIMIT 1" </dev/null)" != 1 ] || return 0
    done
    return 1
}

end_accounting() {
    local stays=no
    [ -e /etc/systemd/system/tailrack-database.service ] || return 0
    retire_daemon slurmdbd
    # Nobody has used what nobody is in.
    if jobs_recorded; then stays=yes; fi
    retire tailrack-database.service
    take_slurm_folder
    if [ "$stays" = yes ]; then echo "what jobs have used stays in $DATABASE_DIR"; else rm -rf "$DATABASE_DIR"; fi
    if grep -qsF 'Written by tailrack.' /etc/slurm/slurmdbd.conf; then rm -f /etc/slurm/slurmdbd.conf; fi
    rm -f /usr/local/lib/tailrack/backup.d/accounting /etc/tailrack/database.cnf /etc/systemd/system/slurmdbd.service.d/tailrack.conf \
        /etc/systemd/system/slurmctld.service.d/tailrack-accounting.conf "$WITHOUT_EXEC"
    rm -rf /var/lib/tailrack/accounting
    systemctl daemon-reload
}
