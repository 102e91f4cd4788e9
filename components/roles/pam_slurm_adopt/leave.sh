#!/bin/bash
# uses: pam_slurm_adopt/stack
# Restore SSH logins.

pam_slurm_adopt_leave() { restore_stack; }
