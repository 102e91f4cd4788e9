#!/bin/bash
# Releases of Slurm, as far as scripts compare them.

release_of() { printf '%s' "$1" | sed -E 's/^[0-9]+://; s/^([0-9]+\.[0-9]+).*/\1/'; }

older() { [ "$1" != "$2" ] && [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }
