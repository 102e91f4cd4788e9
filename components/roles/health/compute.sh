#!/bin/bash
# uses: health/remove
# The scripts that run before and after each job, and what looks at the machine; before slurmd starts.
#
# HEALTH_ENABLED      false where the config turned it off
# HEALTH_SCRIPTS      the config's own scripts: `prolog|epilog name base64`, one a line
# HEALTH_OURS         tailrack's own: `prolog.d/NAME`, one a line
# NFS_EXPORTS_MOUNT   where the share should be

# A script that the config has no more does not run any more.
forget_old_scripts() {
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
    forget_old_scripts
    ensure_file /etc/tailrack/share-mounted 0644 root:root "$NFS_EXPORTS_MOUNT"
    reload_units tailrack-reason.service
}
