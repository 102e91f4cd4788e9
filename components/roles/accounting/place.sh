#!/bin/bash
# Where the database of the accounting is, and what slurmdbd is started by. (The database's unit makes the folder of its socket.)

DATABASE_DIR=/var/lib/slurm/accounting
DATABASE_SOCKET=/run/tailrack-database/socket
WITHOUT_EXEC=/usr/local/lib/tailrack/without-exec

# Run a program of MariaDB's as the account that owns the server, its socket and its folder: seconds, bytes, program, words.
# Whoever answers at the socket may ask a client for files, and gets those of this account alone.
as_database_user() { as_user slurm "$1" "$2" "$3" --no-defaults --socket="$DATABASE_SOCKET" --user=slurm "${@:4}"; }
