#!/bin/bash
# Install Debian packages, in one transaction per step. A new machine is often busy with its own packages: each wait has
# a limit and logs which process it waits for.

# Seconds to wait for cloud-init, and for the locks of apt and dpkg.
CLOUD_INIT_WAIT=600
APT_WAIT=600
# Seconds for all package sources: without DNS apt would try each of them for minutes.
LISTS_WAIT=300
# Minutes for which package lists count as new.
LISTS_FRESH=15

# Remove nothing, keep configuration files that somebody changed, and keep needrestart from restarting anything: jobs
# may run.
apt_get() { NEEDRESTART_SUSPEND=1 apt-get -o Acquire::Retries=3 -o APT::Get::Remove=false -o Dpkg::Options::=--force-confold -y -q "$@"; }

# A source gets 20 s to answer. Descriptions in other languages would be a third of the download.
UPDATE=(-o Acquire::Retries=3 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o Acquire::Languages=none \
    -o APT::Get::List-Cleanup=false -y -q)

# The SSH server answers while cloud-init still writes package sources, makes accounts and installs packages.
wait_for_cloud_init() {
    local status=0
    command -v cloud-init >/dev/null || return 0
    case $(cloud-init status 2>/dev/null) in
        *running*) ;;
        # It may be disabled here, and waiting for it would never end.
        *'not run'* | *'not started'*) [ "$(systemctl is-system-running)" = starting ] || return 0 ;;
        *) return 0 ;;
    esac
    note "waiting for cloud-init, at most ${CLOUD_INIT_WAIT}s"
    timeout "$CLOUD_INIT_WAIT" cloud-init status --wait || status=$?
    [ "$status" -ne 124 ] || fail "cloud-init has not finished after ${CLOUD_INIT_WAIT}s" \
        "see 'cloud-init status --long' and /var/log/cloud-init-output.log on $HOST_NAME; run up again when it has finished"
    [ "$status" -eq 0 ] || note "cloud-init ended with errors, see 'cloud-init status --long'; continuing"
}

# Print the holder of a lock from the errors of apt or dpkg (dpkg gives no name); nothing for other errors.
lock_holder() {
    local line pid name
    line=$(grep -m 1 -E 'Could not get lock|Unable to (lock|acquire)|was locked by' <<<"$1") || return 0
    pid=$(sed -nE 's/.*with pid ([0-9]+).*/\1/p' <<<"$line")
    [ -z "$pid" ] || name=$(cat "/proc/$pid/comm" 2>/dev/null) || name=gone
    printf '%s%s' "${line#*: }" "${name:+ ($name)}"
}

# Run a command of apt or dpkg, and repeat it while other processes have a lock: none of their options waits for all
# locks. Set APT_SAID to its last errors.
when_unlocked() {
    local begin=$SECONDS status file holder last=''
    file=$(mktemp)
    while :; do
        status=0
        "$@" 2>"$file" || status=$?
        APT_SAID=$(<"$file")
        holder=''
        [ "$status" -eq 0 ] || holder=$(lock_holder "$APT_SAID")
        [ -n "$holder" ] || break
        [ $((SECONDS - begin)) -lt "$APT_WAIT" ] || break
        [ "$holder" = "$last" ] || note "waiting, at most ${APT_WAIT}s: $holder"
        last=$holder
        sleep 1
    done
    rm -f "$file"
    [ -z "$APT_SAID" ] || printf '%s\n' "$APT_SAID" >&2
    [ -z "$holder" ] || fail "another process has used the package manager for ${APT_WAIT}s: $holder" \
        "wait until that process ends, or find out why it does not, on $HOST_NAME; then run up again"
    return "$status"
}

# Read the package lists once for all steps of an `up`, and again if they lack one of the given packages: a source may
# be new. A broken source is no error here: the other sources may have the packages.
refresh_package_lists() {
    local read=$PRIVATE_DIR/package-lists
    install -d -m 0700 "$PRIVATE_DIR"
    # The previous step may have started a refresh that still runs.
    exec 7>"$PRIVATE_DIR/package-lists.lock"
    flock -w "$APT_WAIT" 7 || note "another step has been reading the package lists for ${APT_WAIT}s; continuing without waiting"
    # Wait for a running refresh to finish: partial package lists miss most packages.
    if [ $# -gt 0 ] && [ -n "$(without_candidate "$@")" ]; then rm -f "$read"; fi
    if [ -z "$(find "$read" -mmin "-$LISTS_FRESH" 2>/dev/null)" ]; then
        note "reading the package lists, at most ${LISTS_WAIT}s"
        if when_unlocked timeout -k 5 "$LISTS_WAIT" apt-get "${UPDATE[@]}" update 7>&-; then
            : >"$read"
        else
            note "some package sources of this machine cannot be read${APT_SAID:+ ($(head -n 1 <<<"$APT_SAID"))}; continuing with the others"
        fi
    fi
    exec 7>&-
}

# Read the package lists even if they are new: a source was added, or they lack something.
refresh_package_lists_now() {
    rm -f "$PRIVATE_DIR/package-lists"
    refresh_package_lists
}

# Print the version of a package that could be installed; nothing if no source has it.
candidate_of() { apt-cache policy "$1" 2>/dev/null | awk '$1 == "Candidate:" && $2 != "(none)" {print $2}'; }

# Print the packages that no source has, one per line. It makes one call, because each call reads all lists.
without_candidate() {
    local available
    available=$({ apt-cache policy "$@" 2>/dev/null || :; } | awk '/^[^ ]/ { name = $1; sub(/:$/, "", name) } $1 == "Candidate:" && $2 != "(none)" { print name }')
    printf '%s\n' "$@" | grep -vxF -e "$available" || :
}

# Print the packages that are not installed, one per line. Usually all are, and one call is enough.
missing_of() {
    local package states
    states=$(dpkg-query -W -f='${db:Status-Status}\n' "$@" 2>/dev/null) && ! grep -vx installed <<<"$states" >/dev/null && return
    for package in "$@"; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf '%s\n' "$package"
    done
}

# Run a command of apt or dpkg without starting daemons: the step starts them after it has written their configuration.
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

# Install the given packages that are missing.
ensure_packages() {
    local package missing remedy removed reason
    readarray -t missing < <(missing_of "$@")
    [ ${#missing[@]} -gt 0 ] || return 0
    note "installing ${missing[*]}"
    remedy="see 'apt-get update' and 'apt-get install ${missing[*]}' on $HOST_NAME, then run up again"
    [ ! -e /etc/apt/preferences.d/tailrack ] || remedy+="; /etc/apt/preferences.d/tailrack holds \
packages at the versions that the cluster was tested with (docs/day-2.md, updates)"
    # A run that was cut off can leave packages unpacked but not configured.
    when_unlocked dpkg --configure -a || note "some packages of this machine cannot be configured; continuing"
    refresh_package_lists "${missing[@]}"
    if [[ ${APT_SAID:-} == *resolving* ]]; then
        remedy="names do not resolve on $HOST_NAME: see /etc/resolv.conf and 'resolvectl dns' there; $remedy"
    fi
    package=$(without_candidate "${missing[@]}")
    reason=$(fetch_reason <<<"$APT_SAID")
    [ -z "$package" ] || fail "no readable package source has ${package%%$'\n'*}${reason:+ ($reason)}" "$(fetch_remedy "$reason" "$remedy")"
    # When the machine leaves, it lists the packages that came with the cluster.
    printf '%s\n' "${missing[@]}" >>"$STATE_DIR/packages"
    when_unlocked install_unstarted "${missing[@]}" || note "apt-get failed"
    # apt-get also fails for other packages that it could not configure. Only ours matter.
    [ -n "$(missing_of "${missing[@]}")" ] || return 0
    removed=$(apt-get -s install --no-install-recommends "${missing[@]}" | awk '$1 == "Remv" {printf " %s", $2}' || :)
    [ -z "$removed" ] || fail "installing ${missing[*]} would remove$removed" \
        "if they are not needed on $HOST_NAME, remove them yourself, then run up again"
    reason=$(fetch_reason <<<"$APT_SAID")
    fail "apt-get could not install ${missing[*]}${reason:+ ($reason)}" "$(fetch_remedy "$reason" "$remedy")"
}

