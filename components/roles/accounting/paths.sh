#!/bin/bash
# Paths of the accounting database and of slurmdbd's starter. (The database's unit creates the socket's folder.)

DATABASE_DIR=/var/lib/slurm/accounting
DATABASE_SOCKET=/run/tailrack-database/socket
WITHOUT_EXEC=/usr/local/lib/tailrack/without-exec

# Run a MariaDB client as the account that owns the server, its socket and its folder: seconds, bytes, program,
# arguments. A server can ask its client for files, and so gets only those of this account.
as_database_user() { as_user slurm "$1" "$2" "$3" --no-defaults --socket="$DATABASE_SOCKET" --user=slurm "${@:4}"; }
