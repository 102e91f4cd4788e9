#!/bin/bash
# Where the database of the accounting is, and what slurmdbd is started by. (The database's unit makes the folder of its socket.)

DATABASE_DIR=/var/lib/slurm/accounting
DATABASE_SOCKET=/run/tailrack-database/socket
WITHOUT_EXEC=/usr/local/lib/tailrack/without-exec
