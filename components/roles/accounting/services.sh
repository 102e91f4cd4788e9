#!/bin/bash
# uses: accounting/database accounting/slurmdbd accounting/switch accounting/members accounting/off
# Accounting is there, or gone. No node waits for it: slurmctld begins without, and takes it when slurmdbd answers.
#
# ACCOUNTING_ENABLED   true where the config wants it
# ACCOUNTING_ENFORCE   true where it has a limit, an account or a QOS

accounting_services() {
    local enforced=''
    if [ "$ACCOUNTING_ENABLED" != true ]; then
        end_books
        end_accounting
        return
    fi
    set_accounting_of_others_aside
    install_accounting
    start_database
    limit_database_account
    restore_database
    start_slurmdbd
    # Once all users have an account. What holds already goes on holding for those who were there.
    if [ "$ACCOUNTING_ENFORCE" = true ] && grep -qs '^AccountingStorageEnforce=' "$ACCOUNTING_LINES"; then enforced=enforced; fi
    take_accounting "$enforced"
    keep_members
    if [ "$ACCOUNTING_ENFORCE" = true ]; then take_accounting enforced; fi
}
