#!/bin/bash
# Restore the NFS units that note_previous_units.sh noted. Part of tailrack-leave too, so it uses nothing of base.sh.

# Restore the units whose lines match a pattern: masked, disabled and missing units stay so; units that ran run again.
restore_previous_units() {
    local pattern=$1 type name enabled active units=() running=() notes=/var/lib/tailrack/nfs-before
    [ -e "$notes" ] || return 0
    while read -r type name enabled active; do
        [ "$type" != unit ] || units+=("$name")
        case $type,$enabled in
            unit,masked*) ;;
            unit,enabled* | unit,static | unit,indirect | unit,alias | unit,generated)
                systemctl unmask -q --no-reload "$name" || echo "$name is masked still" >&2
                [ "$enabled" != enabled ] || systemctl enable -q --no-reload "$name" || echo "$name is not enabled" >&2
                ;;
            unit,*)
                systemctl unmask -q --no-reload "$name" || echo "$name is masked still" >&2
                systemctl disable -q --no-reload "$name" || echo "$name is not there" >&2
                ;;
            folder,*) rmdir "$name" || echo "$name is not empty" >&2 ;;
        esac
        [ "$active" != active ] || running+=("$name")
    done < <(grep -E "$pattern" "$notes")
    # Once for all, because it takes seconds on a busy machine.
    [ ${#units[@]} -eq 0 ] || systemctl daemon-reload
    for name in "${running[@]}"; do systemctl restart "$name" || echo "$name does not start" >&2; done
    sed -i -E "/$pattern/d" "$notes"
}
