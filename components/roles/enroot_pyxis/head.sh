#!/bin/bash
# uses: enroot_pyxis/install machine/artifact
# The head node brings what the others install, and lets users ask for containers.
#
# ENROOT_PYXIS_CONTENTS   `file base64`, one a line, of files that come with the step
# NFS_EXPORTS_PATH        directory of the share

fetch_artifacts() {
    local folder=$NFS_EXPORTS_PATH/$SHARED_CONTAINERS/artifacts brought name digest address
    # Folders whose parents are root's: nobody else can put anything in their place.
    install -d -m 0755 "$NFS_EXPORTS_PATH/$SHARED_CONTAINERS" "$folder" "$NFS_EXPORTS_PATH/$SHARED_CONTAINERS/pyxis"
    make_temporary brought -d
    while read -r name digest address; do
        if [ -z "$address" ]; then
            address=$brought/$name
            awk -v name="$name" '$1 == name {print $2}' <<<"$ENROOT_PYXIS_CONTENTS" | base64 -d >"$address"
        fi
        keep_artifact "$folder/$name" "$digest" "$address" tailrack:containers.artifacts tailrack:containers.checksums
    done <<<"$ENROOT_PYXIS_ARTIFACTS"
}

# Nodes that Slurm has and that have not shown yet that containers run there: a job that asks for one would run on the bare
# machine without a word. They take no new jobs until their own step, which goes on from here, brings them back.
hold_nodes_without_containers() {
    local node
    systemctl -q is-active slurmctld || return 0
    while read -r node; do
        note "$node has no containers yet: drained until its own step is done"
        scontrol update "nodename=$node" state=drain reason="tailrack: containers are not set up here yet" || :
    done < <(scontrol show nodes --json 2>/dev/null |
        jq -r '.nodes[] | select((.state | index("DRAIN") | not) and ((.extra // "") | startswith("containers") | not)) | .name')
}

# Slurm's own file of plugins, which slurmctld serves to all nodes, has one line more; each machine reads its own folder.
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
