#!/bin/bash
# Debian packages, in one transaction a step. A machine that is met for the first time is often busy with packages of
# its own: what waits here waits with a limit, and says for whom.

# Seconds for cloud-init to end, and for others to give the locks of apt and dpkg back.
CLOUD_INIT_WAIT=600
APT_WAIT=600
# Seconds for all package sources to answer: without DNS apt would try each of them for minutes.
LISTS_WAIT=300
# Minutes for which package lists are as good as new.
LISTS_FRESH=15
# The process that reads them beside the step, empty where none does.
LISTS_LOOK=''
# Packages of a later step, which come at the end of this one; or before, where packages come anyway and they can be among them.
AHEAD=()

# Nothing of the machine's own is removed, a configuration file that somebody changed stays as it is, and needrestart, where it
# is, restarts nothing: jobs may be running.
apt_get() { NEEDRESTART_SUSPEND=1 apt-get -o Acquire::Retries=3 -o APT::Get::Remove=false -o Dpkg::Options::=--force-confold -y -q "$@"; }

# A source that does not answer is given up after 20 s. Descriptions in other languages are a third of what there is to fetch.
UPDATE=(-o Acquire::Retries=3 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o Acquire::Languages=none \
    -o APT::Get::List-Cleanup=false -y -q)

# cloud-init writes package sources, makes accounts and installs packages while the SSH server answers already.
wait_for_cloud_init() {
    local status=0
    command -v cloud-init >/dev/null || return 0
    case $(cloud-init status 2>/dev/null) in
        *running*) ;;
        # It may never have run here at all, and waiting for that would not end.
        *'not run'* | *'not started'*) [ "$(systemctl is-system-running)" = starting ] || return 0 ;;
        *) return 0 ;;
    esac
    note "waiting for cloud-init, at most ${CLOUD_INIT_WAIT}s"
    timeout "$CLOUD_INIT_WAIT" cloud-init status --wait || status=$?
    [ "$status" -ne 124 ] || fail "cloud-init has not set this machine up after ${CLOUD_INIT_WAIT}s" \
        "see 'cloud-init status --long' and /var/log/cloud-init-output.log on $HOST_NAME; run up again when it is done"
    [ "$status" -eq 0 ] || note "cloud-init ended with errors, see 'cloud-init status --long'; going on"
}

# Who has a lock, as apt and dpkg say it; dpkg gives no name. Nothing where they complain of something else.
lock_holder() {
    local said pid name
    said=$(grep -m 1 -E 'Could not get lock|Unable to (lock|acquire)|was locked by' <<<"$1") || return 0
    pid=$(sed -nE 's/.*with pid ([0-9]+).*/\1/p' <<<"$said")
    [ -z "$pid" ] || name=$(cat "/proc/$pid/comm" 2>/dev/null) || name=gone
    printf '%s%s' "${said#*: }" "${name:+ ($name)}"
}

# Run a command of apt or dpkg, again and again while others have its locks: none of their own options waits for all
# of them. APT_SAID is what it complained of in the end.
when_unlocked() {
    local begin=$SECONDS status file holder before=''
    file=$(mktemp)
    while :; do
        status=0
        "$@" 2>"$file" || status=$?
        APT_SAID=$(<"$file")
        holder=''
        [ "$status" -eq 0 ] || holder=$(lock_holder "$APT_SAID")
        [ -n "$holder" ] || break
        [ $((SECONDS - begin)) -lt "$APT_WAIT" ] || break
        [ "$holder" = "$before" ] || note "waiting, at most ${APT_WAIT}s: $holder"
        before=$holder
        sleep 1
    done
    rm -f "$file"
    [ -z "$APT_SAID" ] || printf '%s\n' "$APT_SAID" >&2
    [ -z "$holder" ] || fail "others have had the package manager for ${APT_WAIT}s: $holder" \
        "let that process end, or see what it waits for, on $HOST_NAME; then run up again"
    return "$status"
}

# Read the package lists, once for all steps of an `up`, and again where they lack one of the given packages: there is
# another source now. A source that is broken says nothing about the others: whether packages can be had shows itself afterwards.
refresh_package_lists() {
    local read=$PRIVATE_DIR/package-lists
    if [ -n "$LISTS_LOOK" ]; then
        wait "$LISTS_LOOK" || note "going on without what was read beside"
        LISTS_LOOK=''
    fi
    install -d -m 0700 "$PRIVATE_DIR"
    # The step before may have begun, and ended meanwhile.
    exec 7>"$PRIVATE_DIR/package-lists.lock"
    flock -w "$APT_WAIT" 7 || note "another step has been reading the package lists for ${APT_WAIT}s; not waiting for it"
    # Not before nobody reads them any more: half of them lacks most.
    if [ $# -gt 0 ] && [ -n "$(without_candidate "$@")" ]; then rm -f "$read"; fi
    if [ -z "$(find "$read" -mmin "-$LISTS_FRESH" 2>/dev/null)" ]; then
        note "reading the package lists, at most ${LISTS_WAIT}s"
        if when_unlocked timeout -k 5 "$LISTS_WAIT" apt-get "${UPDATE[@]}" update 7>&-; then
            : >"$read"
        else
            note "not all package sources of this machine can be read${APT_SAID:+ ($(head -n 1 <<<"$APT_SAID"))}; going on with the others"
        fi
    fi
    exec 7>&-
}

# The same beside what a step does first, where packages are missing that it needs later, or a later step does: then it goes
# on when this one has ended, and with it the terminal that sudo may have given it.
begin_package_lists() {
    [ -n "$(missing_of "$@")" ] || return 0
    { trap '' HUP && refresh_package_lists; } 9>&- &
    LISTS_LOOK=$!
}

# The same whenever they were read last: there is another source now, or they lack something.
refresh_package_lists_now() {
    rm -f "$PRIVATE_DIR/package-lists"
    refresh_package_lists
}

# The version that could be installed; nothing where no source has the package.
candidate_of() { apt-cache policy "$1" 2>/dev/null | awk '$1 == "Candidate:" && $2 != "(none)" {print $2}'; }

# Of packages, those that no source has, one a line. In one call: each reads all lists.
without_candidate() {
    local there
    there=$({ apt-cache policy "$@" 2>/dev/null || :; } | awk '/^[^ ]/ { name = $1; sub(/:$/, "", name) } $1 == "Candidate:" && $2 != "(none)" { print name }')
    printf '%s\n' "$@" | grep -vxF -e "$there" || :
}

# Of packages, those that are not installed, one a line. Most often all are there, which one call says.
missing_of() {
    local package states
    states=$(dpkg-query -W -f='${db:Status-Status}\n' "$@" 2>/dev/null) && ! grep -vx installed <<<"$states" >/dev/null && return
    for package in "$@"; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf '%s\n' "$package"
    done
}

# Run a command of apt or dpkg without starting anything half configured: the daemons' own start-up is the step's business,
# after their configuration is written.
unstarted() {
    local policy=/usr/sbin/policy-rc.d status=0
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\n# tailrack: removed after the installation\nexit 101\n' >"$policy"
        chmod 0755 "$policy"
    fi
    "$@" || status=$?
    if grep -q '^# tailrack:' "$policy"; then rm -f "$policy"; fi
    return "$status"
}

install_unstarted() { unstarted apt_get install --no-install-recommends "$@"; }

# Install what is missing of the given packages.
ensure_packages() {
    local package missing remedy removed reason
    readarray -t missing < <(missing_of "$@")
    [ ${#missing[@]} -gt 0 ] || return 0
    note "installing ${missing[*]}"
    remedy="see 'apt-get update' and 'apt-get install ${missing[*]}' on $HOST_NAME, then run up again"
    [ ! -e /etc/apt/preferences.d/tailrack ] || remedy+="; versions that the cluster was proven with are held in \
/etc/apt/preferences.d/tailrack (docs/day-2.md, updates)"
    # A run that was cut off can leave packages unpacked and not configured.
    when_unlocked dpkg --configure -a || note "some packages of this machine cannot be configured; going on"
    refresh_package_lists "${missing[@]}"
    if [[ ${APT_SAID:-} == *resolving* ]]; then
        remedy="names do not resolve on $HOST_NAME: see /etc/resolv.conf and 'resolvectl dns' there; $remedy"
    fi
    package=$(without_candidate "${missing[@]}")
    reason=$(fetch_reason <<<"$APT_SAID")
    [ -z "$package" ] || fail "no package source that can be read here has ${package%%$'\n'*}${reason:+ ($reason)}" "$(fetch_remedy "$reason" "$remedy")"
    # What came with the cluster is said when it leaves.
    printf '%s\n' "${missing[@]}" >>"$STATE_DIR/packages"
    when_unlocked install_unstarted "${missing[@]}" || note "apt-get failed"
    # apt-get fails for others' packages too, which it could not configure; what counts is that ours are there.
    [ -n "$(missing_of "${missing[@]}")" ] || return 0
    removed=$(apt-get -s install --no-install-recommends "${missing[@]}" | awk '$1 == "Remv" {printf " %s", $2}' || :)
    [ -z "$removed" ] || fail "installing ${missing[*]} would remove$removed" \
        "remove them yourself if nobody needs them on $HOST_NAME, then run up again"
    reason=$(fetch_reason <<<"$APT_SAID")
    fail "apt-get could not install ${missing[*]}${reason:+ ($reason)}" "$(fetch_remedy "$reason" "$remedy")"
}

# Install packages that may be missing. What keeps them away is said, and stops nothing.
try_packages() {
    local wanted="$*"
    # In a shell of its own, which a failure ends.
    (
        trap '[ -z "${REASON:-}" ] || note "going on without $wanted: $REASON"' EXIT
        ensure_packages "$@"
    ) || note "the rest of the step goes on"
}
