#!/bin/bash
# A compute node: users, names, the share, slurmd, and the way out.
#
# HEAD_ADDRESS                 tailnet address of the head node
# NODE_PACKAGES                what the configuration needs on top, one a line, may be empty
# AUTHORITY, LEAVE_PUBLIC_KEY  public keys of the head node
# CERTIFICATE                  for this machine's SSH host key
# and what the libraries name.
: "${HEAD_ADDRESS:?}" "${NODE_PACKAGES=}" "${AUTHORITY:?}" "${LEAVE_PUBLIC_KEY:?}" "${CERTIFICATE:?}"

up() {
    local packages=()
    mapfile -t packages < <(printf '%s' "$NODE_PACKAGES")
    ensure_packages slurmd slurm-client "${NAMES_PACKAGES[@]}" ${packages[@]+"${packages[@]}"}
    ensure_names
    ensure_users
    ensure_leave_program "$LEAVE_PUBLIC_KEY" "$HEAD_ADDRESS"
    trust_authority "$AUTHORITY"
    show_certificate "$CERTIFICATE"
    ensure_share "$HEAD_ADDRESS"
    ensure_slurmd "$HEAD_ADDRESS"
    json_object \
        slurm_version "$(json_string "$(slurmd -V | awk '{print $2}')")" \
        cpus "$(scontrol show node "$HOST_NAME" --json | jq '.nodes[0].cpus')" >&3
}
