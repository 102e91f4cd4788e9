#!/bin/bash
# uses: health/remove
# Install the scripts that run before and after each job, and the health check, before slurmd starts.
#
# HEALTH_ENABLED      false if the config turns health off
# HEALTH_SCRIPTS      scripts from the config: `prolog|epilog name base64`, one a line
# HEALTH_OURS         tailrack's scripts: `prolog.d/NAME`, one a line
# NFS_EXPORTS_MOUNT   where the share must be mounted

# Remove scripts that are no longer in the config.
remove_old_scripts() {
    local path name
    for path in "$LIB"/{prolog,epilog}.d/*; do
        [ -e "$path" ] || continue
        name=${path#"$LIB"/}
        if ! has_line "$name" "$HEALTH_OURS" && [[ $'\n'$HEALTH_SCRIPTS != *$'\n'"${name%%.d/*} ${name##*/} "* ]]; then rm -f "$path"; fi
    done
}

health_compute() {
    local kind name text
    if [ "$HEALTH_ENABLED" != true ]; then
        remove_health
        return
    fi
    while read -r kind name text; do
        [ -n "$kind" ] || continue
        ensure_file "$LIB/$kind.d/$name" 0755 root:root "$(base64 -d <<<"$text")"
    done <<<"$HEALTH_SCRIPTS"
    remove_old_scripts
    ensure_file /etc/tailrack/share-mounted 0644 root:root "$NFS_EXPORTS_MOUNT"
    reload_units tailrack-reason.service
}
