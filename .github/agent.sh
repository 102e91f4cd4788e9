#!/bin/bash
# Start an ssh-agent with one key, for the steps after this one. The key is never in a file; the runner ends the agent with
# the job.
#
# SSH_KEY                    the private key, without a passphrase
# RUNNER_TEMP, GITHUB_ENV    as GitHub's runner has them
set -euo pipefail

socket=$RUNNER_TEMP/ssh-agent
rm -f "$socket"
# No longer than a job may take, on a runner that goes on.
eval "$(ssh-agent -a "$socket" -t 3h)" >/dev/null
printf '%s\n' "$SSH_KEY" | ssh-add -q -
printf 'SSH_AUTH_SOCK=%s\nSSH_AGENT_PID=%s\n' "$SSH_AUTH_SOCK" "$SSH_AGENT_PID" >>"$GITHUB_ENV"
