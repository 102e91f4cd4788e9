#!/bin/bash
# uses: accounting/paths slurm/folder
# A database server for slurmdbd alone. Slurm's account runs it; only that account and root can connect, by a socket. It
# has no passwords and listens on no network. Another database server of the machine is not touched.
#
# SLURM_RELEASE   the Slurm release that the config sets; empty for the distribution's

# Limits in MB of the database's memory, which is a quarter of the machine's.
DATABASE_LEAST_MB=128 DATABASE_MOST_MB=4096
DATABASE_LIMIT=120

has_database() { command -v mariadbd >/dev/null && command -v mariadb-install-db >/dev/null && command -v mariadb >/dev/null; }

# Print the packages of the server's programs alone, which bring no unit, folder or account. Older distributions have
# the version in the package's name.
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
    # slurm_release/head.py has already installed a release that the config sets.
    readarray -t packages < <([ -n "$SLURM_RELEASE" ] || printf '%s\n' slurmdbd slurm-wlm-mysql-plugin)
    if ! has_database; then refresh_package_lists; fi
    readarray -t -O "${#packages[@]}" packages < <(database_packages)
    [ ${#packages[@]} -eq 0 ] || ensure_packages "${packages[@]}"
}

database_memory_mb() {
    awk -v min="$DATABASE_LEAST_MB" -v max="$DATABASE_MOST_MB" '/^MemTotal:/ {
        mb = int($2 / 4096)
        if (mb < min) mb = min
        if (mb > max) mb = max
        print mb
    }' /proc/meminfo
}

# Create the database in a folder beside it and rename that at the end, so that a folder of this name is always
# complete.
make_database() {
    take_slurm_folder
    if [ -d "$DATABASE_DIR/mysql" ] || [ -L "$DATABASE_DIR" ]; then
        give_folder slurm 0700 "$DATABASE_DIR"
        return
    fi
    note "creating the database $DATABASE_DIR"
    rm -rf "$DATABASE_DIR.new"
    give_folder slurm 0700 "$DATABASE_DIR.new"
    {
        as_user slurm "$DATABASE_LIMIT" 65536 mariadb-install-db --no-defaults --datadir="$DATABASE_DIR.new" --skip-test-db \
            --skip-name-resolve --auth-root-authentication-method=socket --auth-root-socket-user=slurm </dev/null &&
            mv -T "$DATABASE_DIR.new" "$DATABASE_DIR"
    } || fail "cannot create the accounting database in $DATABASE_DIR" \
            "make room there on $HOST_NAME if its disk is full (df -h $DATABASE_DIR), then run up again"
}

start_database() {
    # Prefix `loose_` makes servers ignore keys that their version lacks. slurmdbd stops if snapshot isolation is on.
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
        fail "the accounting database does not start" \
            "see 'journalctl -u tailrack-database' on $HOST_NAME, then run up again"
}

# Limit slurmdbd's account to its own tables. slurmdbd runs SQL from requests (`sacctmgr archive load`), which could
# write files otherwise. Open connections keep their rights until slurmdbd restarts with its new unit. This needs the
# database's root, so the client runs as root. Account slurm can replace the socket: --local-infile=0 keeps a server
# there from reading files through the client.
limit_database_account() {
    mariadb --no-defaults --local-infile=0 --socket="$DATABASE_SOCKET" --user=root <<<"
GRANT ALL PRIVILEGES ON slurm_acct_db.* TO slurm@localhost;
REVOKE ALL PRIVILEGES ON *.* FROM slurm@localhost;
REVOKE GRANT OPTION ON *.* FROM slurm@localhost;
DELETE FROM mysql.proxies_priv WHERE User = 'slurm';
FLUSH PRIVILEGES;" ||
        fail "cannot limit slurmdbd's database account to its own tables" \
            "see 'journalctl -u tailrack-database' on $HOST_NAME, then run up again"
}

# Load the dump from a lost head node's backup. It replaces the whole database, so loading it twice is safe.
restore_database() {
    local dump=$STATE_DIR/dumps/accounting.sql
    [ -s "$dump" ] || return 0
    note "loading the accounting database of the lost head node"
    as_database_user 3600 65536 mariadb <"$dump" ||
        fail "cannot load the lost head node's accounting database" \
            "see the error above; to start with an empty database, remove $dump on $HOST_NAME; then run up again"
    rm -f "$dump"
}
