#!/bin/bash
# What note_previous_units.sh has noted of the machine's NFS, given back. Part of tailrack-leave too, so it uses nothing of base.sh.

# Lines that a pattern fits: who was masked stays so; who was not there or disabled does not start by itself; who ran, runs.
as_before() {
    local pattern=$1 what name enabled active units=() running=() before=/var/lib/tailrack/nfs-before
    [ -e "$before" ] || return 0
    while read -r what name enabled active; do
        [ "$what" != unit ] || units+=("$name")
        case $what,$enabled in
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
    done < <(grep -E "$pattern" "$before")
    # Once for all of them: on a busy machine systemd takes seconds.
    [ ${#units[@]} -eq 0 ] || systemctl daemon-reload
    for name in "${running[@]}"; do systemctl restart "$name" || echo "$name does not run" >&2; done
    sed -i -E "/$pattern/d" "$before"
}
