#!/bin/bash
# Where the database of the accounting is. (Its unit makes the folder of its socket.)

DATABASE_DIR=/var/lib/slurm/accounting
DATABASE_SOCKET=/run/tailrack-database/socket
