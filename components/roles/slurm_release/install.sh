#!/bin/bash
# uses: slurm_release/ready_packages slurm_release/packages slurm_release/take_turn slurm_release/wait_for_packages
# Replace the machine's Slurm packages by those of a release, in one transaction.
#
# SLURM_RELEASE   release, such as 24.11.5

# Space for the packages and their dependencies.
INSTALL_ROOM_MB=200
# Largest size of slurmctld's state, in bytes.
STATE_MOST=100000000000
# Slurm's daemons, in the order in which a new release starts them; they stop in reverse order.
SLURM_DAEMONS=(slurmdbd slurmctld slurmd)

# Print Debian's and Ubuntu's Slurm packages, by the current and the former name of their source.
distribution_slurm() { slurm_packages_of slurm-wlm slurm-llnl; }

# Run an apt transaction that may remove packages, unlike apt_get; install_release has checked the removals.
replace_packages() {
    apt-get -o Acquire::Retries=3 -o Dpkg::Options::=--force-confold -y -q --no-install-recommends \
        --allow-change-held-packages "$@"
}

# Print the packages that apt would remove, one per line: arguments of replace_packages.
would_remove() { replace_packages -s "$@" | awk '$1 == "Remv" {print $2}' | sort; }

# Create Slurm's account, which Debian's packages create but these do not, with Debian's number.
ensure_slurm_account() {
    local number=''
    if id -u slurm >/dev/null 2>&1; then return 0; fi
    if ! getent passwd 64030 >/dev/null && ! getent group 64030 >/dev/null; then number=64030; fi
    useradd --system --user-group ${number:+--uid "$number"} --no-create-home --home-dir /nonexistent \
        --shell /usr/sbin/nologin slurm
}

# Start daemons again with the installed packages.
restart_daemons() { [ $# -eq 0 ] || systemctl start "$@" || note "cannot start $* again"; }

# Save the state of the stopped slurmctld, because no release reads the state of a newer one. If that fails, start the
# daemons in the arguments again.
save_state() {
    local state=/var/lib/slurm/slurmctld saved=$STATE_DIR/slurm/state-before-$SLURM_RELEASE.tar
    # State that this release has written is no state to go back to.
    if [ ! -d "$state" ] || [ "$(cat "$SLURM_INSTALLED" 2>/dev/null)" = "$(release_kind)" ]; then return 0; fi
    mkdir -p "${saved%/*}"
    if ! (umask 077 && as_user slurm 900 "$STATE_MOST" tar -c -C "${state%/*}" "${state##*/}" </dev/null >"$saved.new"); then
        rm -f "$saved.new"
        restart_daemons "$@"
        fail "cannot save slurmctld's state as $saved" "make room there on $HOST_NAME, then run up again"
    fi
    mv -fT "$saved.new" "$saved"
    note "saved slurmctld's state as $saved"
}

# Install a release: package folder, names of packages. Slurm's daemons stop first, and their own steps start them
# again; jobs continue, each under the program that started it.
install_release() {
    local from=$1 wanted=("${@:2}") folder=$STATE_DIR/slurm-install path old removed unexpected room unit index running=() arguments=() reason
    if [ "$(cat "$SLURM_INSTALLED" 2>/dev/null)" = "$(release_kind)" ] && [ -z "$(missing_of "${wanted[@]}")" ] &&
        [ -z "$(distribution_slurm)" ]; then return 0; fi
    # Check and install copies, which no other account can change afterwards.
    rm -rf "$folder"
    install -d -m 0700 "$folder"
    cp "$from"/* "$folder/"
    { has_release "$folder" && matches_list "$folder"; } || fail "the packages in $from are incomplete or do not match the list" \
        "run up of the cluster's stack again, which provides them again"
    # All packages of a release have one version, so also replace installed ones of another version.
    readarray -t -O "${#wanted[@]}" wanted < <(slurm_packages_of slurm-smd | grep -xF "$(printf '%s\n' "${RELEASE_PACKAGES[@]}")" |
        grep -vxF "$(printf '%s\n' "${wanted[@]}")")
    for path in "${wanted[@]}"; do arguments+=("$(compgen -G "$folder/${path}_*.deb")"); done
    readarray -t old < <(distribution_slurm)
    arguments=(install "${arguments[@]}" "${old[@]/%/-}")
    when_unlocked dpkg --configure -a || note "some packages of this machine cannot be configured; continuing"
    refresh_package_lists
    removed=$(would_remove "${arguments[@]}") || fail "apt cannot install Slurm $SLURM_RELEASE here" \
        "see above and 'apt-get update' on $HOST_NAME, then run up again"
    unexpected=$(comm -23 <(printf '%s' "$removed${removed:+$'\n'}") <(printf '%s\n' "${old[@]}" | sort) | paste -sd ' ')
    [ -z "$unexpected" ] || fail "installing Slurm $SLURM_RELEASE would remove $unexpected too" \
        "remove it yourself if it is not needed on $HOST_NAME, then run up again"
    room=$(df -Pm /usr | awk 'NR == 2 {print $4}')
    [ "$room" -ge "$INSTALL_ROOM_MB" ] || fail "installing Slurm $SLURM_RELEASE needs up to $INSTALL_ROOM_MB MB, and /usr has $room" \
        "make room there on $HOST_NAME, then run up again"
    # Download before stopping anything.
    if ! when_unlocked replace_packages --download-only "${arguments[@]}"; then
        reason=$(fetch_reason <<<"$APT_SAID")
        fail "apt cannot download what Slurm $SLURM_RELEASE needs${reason:+ ($reason)}" \
            "$(fetch_remedy "$reason" "see above and 'apt-get update' on $HOST_NAME, then run up again")"
    fi
    ensure_slurm_account
    # The head node's controller comes first; the steps of nodes run after its step.
    if systemctl -q is-active slurmctld; then
        hold_older_nodes "$SLURM_RELEASE" || fail "slurmctld does not reserve the nodes that are older than $SLURM_RELEASE" \
            "see 'journalctl -u slurmctld' on $HOST_NAME, then run up again"
    else
        take_turn
    fi
    note "installing Slurm $SLURM_RELEASE${removed:+ instead of ${removed//$'\n'/ }}"
    for unit in "${SLURM_DAEMONS[@]}"; do
        if systemctl -q is-active "$unit"; then running+=("$unit"); fi
    done
    for ((index = ${#running[@]} - 1; index >= 0; index--)); do systemctl stop "${running[index]}"; done
    save_state "${running[@]}"
    printf '%s\n' "${wanted[@]}" >>"$STATE_DIR/packages"
    if ! when_unlocked unstarted replace_packages "${arguments[@]}" || [ -n "$(missing_of "${wanted[@]}")" ]; then
        restart_daemons "${running[@]}"
        reason=$(fetch_reason <<<"$APT_SAID")
        fail "apt could not install Slurm $SLURM_RELEASE${reason:+ ($reason)}" \
            "$(fetch_remedy "$reason" "see above and 'apt-get -f install' on $HOST_NAME, then run up again")"
    fi
    rm -rf "$folder"
    ensure_file "$SLURM_PIN" 0644 root:root "# Written by tailrack: the cluster installs its own release of Slurm.
Package: src:slurm-wlm
Pin: release *
Pin-Priority: -1"
    slurm_packages_of slurm-smd | xargs -r apt-mark hold
    ensure_file "$SLURM_INSTALLED" 0644 root:root "$(release_kind)"
    remove_other_releases
}

# Remove packages that were built here for other releases.
remove_other_releases() {
    [ ! -d "$STATE_DIR/slurm-releases" ] ||
        find "$STATE_DIR/slurm-releases" -mindepth 1 -maxdepth 1 ! -name "$(release_kind)" -exec rm -rf {} +
}
