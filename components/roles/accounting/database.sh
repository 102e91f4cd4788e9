#!/bin/bash
# uses: accounting/place slurm/folder
# A database server of the cluster's own, for slurmdbd alone: Slurm's account runs it, and only that account and root can open its
# socket's database. It knows no passwords and listens on no network. One that the machine has besides is not touched.
#
# SLURM_RELEASE   the config's own release of Slurm; empty where it is the distribution's

# MB of memory that the database may fill: a quarter of the machine's, within these.
DATABASE_LEAST_MB=128 DATABASE_MOST_MB=4096
DATABASE_LIMIT=120

has_database() { command -v mariadbd >/dev/null && command -v mariadb-install-db >/dev/null && command -v mariadb >/dev/null; }

# The server's program alone: no unit, folder or account of a server of the machine's own comes with it. What it is called has
# the version in it in older distributions.
database_packages() {
    local package name
    if has_database; then return 0; fi
    for package in mariadb-server-core mariadb-client-core; do
        name=$package
        if [ -z "$(candidate_of "$name")" ]; then
            name=$(apt-cache pkgnames "$package-" | grep -E -- '-[0-9.]+$' | sort -V | tail -n 1)
        fi
        printf '%s\n' "${name:-$package}"
    done
}

install_accounting() {
    local packages
    # A release of the config's own is there already (slurm_release/head.sh).
    readarray -t packages < <([ -n "$SLURM_RELEASE" ] || printf '%s\n' slurmdbd slurm-wlm-mysql-plugin)
    if ! has_database; then refresh_package_lists; fi
    readarray -t -O "${#packages[@]}" packages < <(database_packages)
    [ ${#packages[@]} -eq 0 ] || ensure_packages "${packages[@]}"
}

database_memory_mb() {
    awk -v least="$DATABASE_LEAST_MB" -v most="$DATABASE_MOST_MB" '/^MemTotal:/ {
        mb = int($2 / 4096)
        if (mb < least) mb = least
        if (mb > most) mb = most
        print mb
    }' /proc/meminfo
}

# Root gives the account an empty folder beside it and renames that when the account has filled it: a folder of this name is a
# whole database.
make_database() {
    take_slurm_folder
    if [ -d "$DATABASE_DIR/mysql" ] || [ -L "$DATABASE_DIR" ]; then
        give_folder slurm 0700 "$DATABASE_DIR"
        return
    fi
    note "making the database $DATABASE_DIR"
    rm -rf "$DATABASE_DIR.new"
    give_folder slurm 0700 "$DATABASE_DIR.new"
    {
        as_user slurm "$DATABASE_LIMIT" 65536 mariadb-install-db --no-defaults --datadir="$DATABASE_DIR.new" --skip-test-db \
            --skip-name-resolve --auth-root-authentication-method=socket --auth-root-socket-user=slurm </dev/null &&
            mv -T "$DATABASE_DIR.new" "$DATABASE_DIR"
    } || fail "the database of the accounting cannot be made in $DATABASE_DIR" \
            "make room there on $HOST_NAME if its disk is full (df -h $DATABASE_DIR), then run up again"
}

start_database() {
    # Keys that a server of another version does not know are `loose`. With isolated snapshots slurmdbd stops.
    ensure_file /etc/tailrack/database.cnf 0644 root:root "# Written by tailrack.
[mariadbd]
datadir=$DATABASE_DIR
socket=$DATABASE_SOCKET
pid-file=${DATABASE_SOCKET%/*}/pid
skip-networking
character-set-server=utf8mb4
innodb_buffer_pool_size=$(database_memory_mb)M
innodb_lock_wait_timeout=900
max_allowed_packet=16M
loose_innodb_snapshot_isolation=OFF"
    make_database
    reload_units tailrack-database.service
    enable_units tailrack-database.service
    if [ -n "$CHANGED" ]; then systemctl restart tailrack-database; else systemctl start tailrack-database; fi ||
        fail "the database of the accounting does not start" "see 'journalctl -u tailrack-database' on $HOST_NAME, then run up again"
}

# slurmdbd takes SQL from requests (`sacctmgr archive load`). Its account may use its own tables and nothing else: it could write
# files otherwise. Connections that are open keep the rights they had; slurmdbd restarts with its new unit.
# Only root of the database can do this, and that is root of the machine. Whoever answers at the socket, which slurm can
# replace, gets no file from this client (--local-infile=0).
limit_database_account() {
    mariadb --no-defaults --local-infile=0 --socket="$DATABASE_SOCKET" --user=root <<<"
GRANT ALL PRIVILEGES ON slurm_acct_db.* TO slurm@localhost;
REVOKE ALL PRIVILEGES ON *.* FROM slurm@localhost;
REVOKE GRANT OPTION ON *.* FROM slurm@localhost;
DELETE FROM mysql.proxies_priv WHERE User = 'slurm';
FLUSH PRIVILEGES;" ||
        fail "the rights of slurmdbd's account in the database cannot be limited to its own tables" \
            "see 'journalctl -u tailrack-database' on $HOST_NAME, then run up again"
}

# What a lost head node's jobs had used, of its backup: the dump replaces the database whole, however often it is read.
restore_database() {
    local dump=$STATE_DIR/dumps/accounting.sql
    [ -s "$dump" ] || return 0
    note "reading the database of the lost head node"
    as_database_user 3600 65536 mariadb <"$dump" ||
        fail "the database of the lost head node cannot be read into that of the accounting" \
            "see above what it says; to begin with an empty one, remove $dump on $HOST_NAME; then run up again"
    rm -f "$dump"
}
