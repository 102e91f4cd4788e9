#!/bin/bash
# The head node: users, names, homes, NFS server, slurmctld, and slurmd where it is a compute node too.
#
# HEAD_ADDRESS   its own tailnet address
# HEAD_PACKAGES  what the configuration needs on top, one a line, may be empty
# COMPUTE        yes to run jobs here too
# and what the libraries name.
: "${HEAD_ADDRESS:?}" "${HEAD_PACKAGES=}" "${COMPUTE:=no}"

up() {
    local packages=()
    mapfile -t packages < <(printf '%s' "$HEAD_PACKAGES")
    # shellcheck disable=SC2046  # one word a package
    ensure_packages slurmctld slurm-client "${NAMES_PACKAGES[@]}" $(nfs_server_packages) ${packages[@]+"${packages[@]}"} \
        $([ "$COMPUTE" = no ] || echo slurmd)
    ensure_names
    ensure_users
    ensure_homes
    ensure_share_here
    trust_authority "$(public_key "$AUTHORITY_KEY")"
    show_certificate "$(certificate_for "$HOST_NAME" "$HEAD_ADDRESS" "$(cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub)")"
    apply_exports
    ensure_slurmctld
    if [ "$COMPUTE" = yes ]; then ensure_slurmd "$HEAD_ADDRESS"; fi
    json_object \
        slurm_version "$(json_string "$(slurmctld -V | awk '{print $2}')")" >&3
}

# The last to go: all other nodes have left. The share's directory and the users stay: they are the users' own.
down() {
    systemctl disable -q --now slurmd slurmctld || note "slurm was not there"
    rm -f "$EXPORTS_DIR"/tailrack-*.exports
    apply_exports
    systemctl disable -q --now "$(if [ "$KERNEL_NFS" = true ]; then echo nfs-server; else echo nfs-ganesha; fi)"
    forget_trust
    leave_tailnet
    json_object left true >&3
}
