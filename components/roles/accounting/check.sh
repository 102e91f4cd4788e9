#!/bin/bash
# uses: foreign_cluster/foreign
# Look for another cluster's slurmdbd.

accounting_check() {
    local path=/etc/slurm/slurmdbd.conf
    [ ! -e "$path" ] || grep -qF 'Written by tailrack.' "$path" || found_foreign "$path"
}
