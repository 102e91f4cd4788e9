#!/bin/bash
# uses: accounting/off slurm/folder
# What jobs have used stays with the machine, as people's files do.

accounting_leave() {
    end_accounting
    leave_slurm_folder
}
