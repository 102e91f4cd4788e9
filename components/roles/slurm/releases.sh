#!/bin/bash
# Releases of Slurm, as far as scripts compare them.

# The first release whose slurmd has `--systemd`, and with `-Z` a node that a controller creates and deletes.
SLURM_NEEDED=23.11
# A release for all machines where none of them has one that could be.
SLURM_ADVISED=25.11.7

release_of() { printf '%s' "$1" | sed -E 's/^[0-9]+://; s/^([0-9]+\.[0-9]+).*/\1/'; }

# What Slurm calls it: without what a distribution adds.
upstream_of() { printf '%s' "$1" | sed -E 's/^[0-9]+://; s/[-+~].*//'; }

older() { [ "$1" != "$2" ] && [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# What to do where machines have releases that do not fit.
one_release() {
    printf 'have one release on all machines: write tailrack:slurm.release: %s, and its release_sha256 (docs/slurm-releases.md)' "$1"
}
