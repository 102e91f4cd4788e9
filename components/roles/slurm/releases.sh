#!/bin/bash
# Compare releases of Slurm.

# The first release with `slurmd --systemd`, whose `-Z` nodes a controller creates and deletes.
SLURM_NEEDED=23.11
# The release to suggest when no machine has a usable one.
SLURM_ADVISED=25.11.7

release_of() { printf '%s' "$1" | sed -E 's/^[0-9]+://; s/^([0-9]+\.[0-9]+).*/\1/'; }

# Print the version without the distribution's suffix.
upstream_of() { printf '%s' "$1" | sed -E 's/^[0-9]+://; s/[-+~].*//'; }

older() { [ "$1" != "$2" ] && [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# Print the remedy for machines whose releases do not fit together.
one_release_remedy() {
    printf 'install one release on all machines: set tailrack:slurm.release: %s and release_sha256 (docs/slurm-releases.md)' "$1"
}
