#!/bin/bash
# uses: machine/keep_running nfs_exports/foreign_exports
# The NFS server: version 4 only, one export file a member holding its one address. The kernel's server where the
# kernel has one; nfs-ganesha in user space, fed from the same files, where it has not.
#
# NFS_EXPORTS_PATH   directory exported
# HEAD_KERNEL_NFS    true when the head node's kernel has an NFS server (a fact of the check step)

KERNEL_SERVER_FILE=/etc/nfs.conf.d/tailrack.conf
# One of those that are closed (role.py).
MOUNTD_PORT=20048

# rpc.mountd listens for clients of versions 2 and 3: without both of them nowhere, and with one of them on any port that
# the kernel gives. Whose clients have version 3 keep it: the share itself is exported to members alone, whatever the
# version. By the lease clients choose how long a dead connection is kept (that long) and how often a new one is tried
# (twice as often): with the kernel's own 90 s, a node that was cut off could be back a minute and a half too late.
kernel_server_configuration() {
    printf '# Written by tailrack.\n[mountd]\nport=%s' "$MOUNTD_PORT"
    [ -n "$(exports_of_others)" ] || printf '\n[nfsd]\n%s' $'vers2=n\nvers3=n\nvers4=y\nlease-time=30\ngrace-time=30'
}

# What another file of /etc/nfs.conf.d says may count more than ours.
mountd_on_another_port() {
    ss -Hlntup | awk -v port=":$MOUNTD_PORT\$" '/"rpc\.mountd"/ && $5 !~ port {print $1, $5; found = 1} END {exit !found}'
}

ensure_kernel_server() {
    CHANGED=
    ensure_file "$KERNEL_SERVER_FILE" 0644 root:root "$(kernel_server_configuration)"
    # It starts what it wants of NFS before version 4, unless systemd knows by then that this is masked (machine.sh).
    keep_running nfs-mountd.service nfsdcld.service
    reload_stale_units
    enable_units nfs-server.service
    if [ -n "$CHANGED" ] || ! systemctl -q is-active nfs-server; then systemctl restart nfs-server; fi
    if mountd_on_another_port; then
        fail "rpc.mountd listens on ports that the cluster's rules do not close" \
            "see what sets vers2, vers3 or the port of mountd in /etc/nfs.conf and /etc/nfs.conf.d on $HOST_NAME, take it \
out, then run up again"
    fi
    exportfs -ra
}

# One EXPORT with a CLIENT block a member, made from the same files exportfs reads. The head node itself writes to the
# disk behind the server's back; nodes see that after about two seconds (it counts whole ones), not after the minute that
# is the default.
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
    if ganesha_of_others; then
        set_aside "$GANESHA_FILE"
    elif [ -e "$GANESHA_FILE" ] && ! grep -q "$OUR_GANESHA" "$GANESHA_FILE"; then
        # The package's own, for the day the cluster leaves.
        cp -p "$GANESHA_FILE" "$GANESHA_FILE.tailrack-before"
    fi
    # Its package does not start it again when it is killed; without it every node hangs.
    rm -f /etc/systemd/system/nfs-ganesha.service.d/tailrack.conf # of an earlier version
    keep_running nfs-ganesha.service
    reload_stale_units
    enable_units nfs-ganesha.service
    tell_ganesha
}

tell_ganesha() {
    CHANGED=
    ensure_file "$GANESHA_FILE" 0644 root:root "$(ganesha_configuration)"
    if ! systemctl -q is-active nfs-ganesha; then
        systemctl restart nfs-ganesha
    elif [ -n "$CHANGED" ]; then
        systemctl kill -s HUP nfs-ganesha
    fi
}

# Bring the server to what the config and the export files say.
apply_exports() { if [ "$HEAD_KERNEL_NFS" = true ]; then ensure_kernel_server; else ensure_ganesha; fi; }

tell_kernel_server() {
    systemctl -q is-active nfs-server || systemctl restart nfs-server
    exportfs -ra
}

# Have it run, and read the export files anew, as a whole: nothing is left of an address that a member had before. All else is
# the head node's own step's, and members wait for each other's.
apply_members() { if [ "$HEAD_KERNEL_NFS" = true ]; then tell_kernel_server; else tell_ganesha; fi; }
