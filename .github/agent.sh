#!/bin/bash
# Start an ssh-agent with one key, never in a file, for the next steps. The runner ends the agent with the job.
#
# SSH_KEY                    the private key, without a passphrase
# RUNNER_TEMP, GITHUB_ENV    set by GitHub's runner
set -euo pipefail

socket=$RUNNER_TEMP/ssh-agent
rm -f "$socket"
# A persistent runner keeps the key no longer than the longest job.
eval "$(ssh-agent -a "$socket" -t 3h)" >/dev/null
printf '%s\n' "$SSH_KEY" | ssh-add -q -
printf 'SSH_AUTH_SOCK=%s\nSSH_AGENT_PID=%s\n' "$SSH_AUTH_SOCK" "$SSH_AGENT_PID" >>"$GITHUB_ENV"
