#!/bin/bash
# uses: foreign_cluster/foreign
# Accounting of another cluster.

accounting_check() {
    local path=/etc/slurm/slurmdbd.conf
    [ ! -e "$path" ] || grep -qF 'Written by tailrack.' "$path" || found_foreign "$path"
}
