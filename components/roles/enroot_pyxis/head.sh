#!/bin/bash
# uses: enroot_pyxis/install machine/artifact
# Put Enroot's and Pyxis' files on the share for all nodes, and enable --container-image in Slurm.
#
# ENROOT_PYXIS_CONTENTS   `file base64`, one a line, of files that the step carries
# NFS_EXPORTS_PATH        directory of the share

fetch_artifacts() {
    local folder=$NFS_EXPORTS_PATH/$SHARED_CONTAINERS/artifacts carried name digest address
    # Root owns the parents of these folders, so no account can replace them.
    install -d -m 0755 "$NFS_EXPORTS_PATH/$SHARED_CONTAINERS" "$folder" "$NFS_EXPORTS_PATH/$SHARED_CONTAINERS/pyxis"
    make_temporary carried -d
    while read -r name digest address; do
        if [ -z "$address" ]; then
            address=$carried/$name
            awk -v name="$name" '$1 == name {print $2}' <<<"$ENROOT_PYXIS_CONTENTS" | base64 -d >"$address"
        fi
        keep_artifact "$folder/$name" "$digest" "$address" tailrack:containers.artifacts tailrack:containers.checksums
    done <<<"$ENROOT_PYXIS_ARTIFACTS"
}

# Drain nodes without containers: there Slurm would silently run a container's job on the bare machine. Each node's next
# step resumes it.
hold_nodes_without_containers() {
    local node
    systemctl -q is-active slurmctld || return 0
    while read -r node; do
        note "$node has no containers yet: drained until its own step finishes"
        scontrol update "nodename=$node" state=drain reason="tailrack: containers are not set up here yet" || :
    done < <(scontrol show nodes --json 2>/dev/null |
        jq -r '.nodes[] | select((.state | index("DRAIN") | not) and ((.extra // "") | startswith("containers") | not)) | .name')
}

# Add a line to Slurm's plugstack.conf, which slurmctld serves to all nodes: each machine loads the plugins in its own
# folder.
ensure_plugstack() {
    local file=/etc/slurm/plugstack.conf line="include $PLUGSTACK_DIR/*.conf"
    grep -qsxF "$line" "$file" && return
    ensure_file "$file" 0644 root:root "$(cat "$file" 2>/dev/null || :)
$line"
    if systemctl -q is-active slurmctld; then scontrol reconfigure; fi
}

enroot_pyxis_head() {
    local kind
    fetch_artifacts
    kind=$NFS_EXPORTS_PATH/$SHARED_CONTAINERS/pyxis/$(plugin_kind)
    has_plugin "$kind" || compile_plugin "$kind"
    [ -e "$PLUGSTACK_DIR/pyxis.conf" ] || hold_nodes_without_containers
    install_containers
    ensure_plugstack
}
