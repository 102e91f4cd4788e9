#!/bin/bash
# The name of the installed release's package folder, in one line.
SLURM_INSTALLED=/var/lib/tailrack/slurm-release
