#!/bin/bash
# uses: machine/keep_running nfs_exports/foreign_exports
# Run the NFS server: version 4 only, with one export file per member for its one address. The kernel's server if the
# kernel has one; otherwise nfs-ganesha in user space, from the same files.
#
# NFS_EXPORTS_PATH   exported folder
# HEAD_KERNEL_NFS    true when the head node's kernel has an NFS server (a fact of the check step)

KERNEL_SERVER_FILE=/etc/nfs.conf.d/tailrack.conf
# One of the closed ports (role.py).
MOUNTD_PORT=20048

# Print the kernel server's configuration. rpc.mountd listens for clients of versions 2 and 3: with both off nowhere,
# with one on at any port. Machines whose foreign clients use version 3 keep it; the share is exported only to members
# anyway. The lease time decides how long clients keep a dead connection (that long) and how often they retry (twice as
# often): with the kernel's 90 s a node could be back a minute and a half too late after an outage.
kernel_server_configuration() {
    printf '# Written by tailrack.\n[mountd]\nport=%s' "$MOUNTD_PORT"
    [ -n "$(foreign_exports)" ] || printf '\n[nfsd]\n%s' $'vers2=n\nvers3=n\nvers4=y\nlease-time=30\ngrace-time=30'
}

# Succeed if mountd uses another port: a later file in /etc/nfs.conf.d overrides ours.
mountd_on_another_port() {
    ss -Hlntup | awk -v port=":$MOUNTD_PORT\$" '/"rpc\.mountd"/ && $5 !~ port {print $1, $5; found = 1} END {exit !found}'
}

ensure_kernel_server() {
    CHANGED=
    ensure_file "$KERNEL_SERVER_FILE" 0644 root:root "$(kernel_server_configuration)"
    # It starts units of NFS before version 4, unless systemd has already read their masks (machine.sh).
    keep_running nfs-mountd.service nfsdcld.service
    reload_stale_units
    enable_units nfs-server.service
    if [ -n "$CHANGED" ] || ! systemctl -q is-active nfs-server; then systemctl restart nfs-server; fi
    if mountd_on_another_port; then
        fail "rpc.mountd listens on ports that the cluster's rules do not close" \
            "look for vers2, vers3 or mountd's port in /etc/nfs.conf and /etc/nfs.conf.d on $HOST_NAME, remove the setting, \
then run up again"
    fi
    exportfs -ra
}

# Print ganesha's configuration: one EXPORT with a CLIENT block per member, from exportfs's files. The head node writes
# to the disk without the server. Nodes see such writes after about two seconds (it counts whole ones), not after the
# default of a minute.
ganesha_configuration() {
    local file path client rest
    printf '%s from %s/*.exports\n' "${OUR_GANESHA#^}" "$EXPORTS_DIR"
    printf 'NFS_CORE_PARAM { Protocols = 4; mount_path_pseudo = true; allow_set_io_flusher_fail = true; Enable_RQUOTA = false; }\n'
    printf 'NFSV4 { Grace_Period = 5; Lease_Lifetime = 10; Minor_Versions = 0,1,2; RecoveryBackend = fs; Only_Numeric_Owners = true; }\n'
    printf 'EXPORT {\n    Export_Id = 1; Path = %s; Pseudo = %s; Access_Type = NONE; Squash = Root_Squash; Anonymous_Uid = 65534; Anonymous_Gid = 65534; SecType = sys; PrivilegedPort = true;\n    Attr_Expiration_Time = 1;\n    FSAL { Name = VFS; }\n' \
        "$NFS_EXPORTS_PATH" "$NFS_EXPORTS_PATH"
    for file in "$EXPORTS_DIR"/tailrack-*.exports; do
        [ -e "$file" ] || continue
        read -r path client <"$file"
        rest=${client%%(*}
        printf '    CLIENT { Clients = %s; Access_Type = RW; } # %s %s\n' "${rest%/32}" "$path" "${file##*/}"
    done
    printf '}\n'
}

ensure_ganesha() {
    CHANGED=
    if foreign_ganesha; then
        set_aside "$GANESHA_FILE"
    elif [ -e "$GANESHA_FILE" ] && ! grep -q "$OUR_GANESHA" "$GANESHA_FILE"; then
        # Keep the package's file for the day the machine leaves.
        cp -p "$GANESHA_FILE" "$GANESHA_FILE.tailrack-before"
    fi
    # The package does not restart a killed server, without which every node hangs.
    rm -f /etc/systemd/system/nfs-ganesha.service.d/tailrack.conf # of an earlier version
    keep_running nfs-ganesha.service
    reload_stale_units
    enable_units nfs-ganesha.service
    configure_ganesha
}

configure_ganesha() {
    CHANGED=
    ensure_file "$GANESHA_FILE" 0644 root:root "$(ganesha_configuration)"
    if ! systemctl -q is-active nfs-ganesha; then
        systemctl restart nfs-ganesha
    elif [ -n "$CHANGED" ]; then
        systemctl kill -s HUP nfs-ganesha
    fi
}

# Configure the server from the config and the export files.
apply_exports() { if [ "$HEAD_KERNEL_NFS" = true ]; then ensure_kernel_server; else ensure_ganesha; fi; }

reload_kernel_server() {
    systemctl -q is-active nfs-server || systemctl restart nfs-server
    exportfs -ra
}

# Start the server if needed and reload all export files, so that no old address of a member remains. The head node's
# own step does the rest, because members' steps wait for each other.
apply_members() { if [ "$HEAD_KERNEL_NFS" = true ]; then reload_kernel_server; else configure_ganesha; fi; }
