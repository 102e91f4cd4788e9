#!/bin/bash
# uses: accounting/database accounting/slurmdbd accounting/switch accounting/associations accounting/remove
# Start or remove accounting. Nodes do not wait for it: slurmctld starts without slurmdbd and uses it when it answers.
#
# ACCOUNTING_ENABLED   true if the config enables it
# ACCOUNTING_ENFORCE   true if the config has a limit, an account or a QOS

accounting_services() {
    local enforced=''
    if [ "$ACCOUNTING_ENABLED" != true ]; then
        leave_slurmdbd
        end_accounting
        return
    fi
    set_foreign_slurmdbd_aside
    install_accounting
    start_database
    limit_database_account
    restore_database
    start_slurmdbd
    # Enforce limits only after all users have an account; limits in force stay in force meanwhile.
    if [ "$ACCOUNTING_ENFORCE" = true ] && grep -qs '^AccountingStorageEnforce=' "$ACCOUNTING_LINES"; then enforced=enforced; fi
    take_accounting "$enforced"
    apply_associations
    if [ "$ACCOUNTING_ENFORCE" = true ]; then take_accounting enforced; fi
}
