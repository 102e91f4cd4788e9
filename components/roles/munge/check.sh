#!/bin/bash
# uses: munge/own
# With another key this machine could not speak to the cluster that it is in.

munge_check() { if munge_key_of_others; then found_foreign "a munge key ($MUNGE_FILE)"; fi; }
