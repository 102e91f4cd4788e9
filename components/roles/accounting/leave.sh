#!/bin/bash
# uses: accounting/remove slurm/folder
# The record of job usage stays on the machine, as users' files do.

accounting_leave() {
    end_accounting
    leave_slurm_folder
}
