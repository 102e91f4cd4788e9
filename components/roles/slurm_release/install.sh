#!/bin/bash
# uses: slurm_release/ready_packages slurm_release/packages slurm_release/take_turn slurm_release/wait_for_packages
# The packages of a release take the place of those that the machine has of Slurm, in one transaction.
#
# SLURM_RELEASE   release, such as 24.11.5

# Of the disk that the packages go to, with what they need.
INSTALL_ROOM_MB=200
# Bytes that slurmctld's state has at most.
STATE_MOST=100000000000
# Slurm's daemons, in the order in which a new release starts; they end in the reverse one.
SLURM_DAEMONS=(slurmdbd slurmctld slurmd)

# Packages of Slurm that are not a release of ours: Debian's and Ubuntu's, by their source's name of today and before.
distribution_slurm() { slurm_packages_of slurm-wlm slurm-llnl; }

# A transaction of apt that may remove, unlike those of apt_get: what goes was looked at before.
exchange() {
    apt-get -o Acquire::Retries=3 -o Dpkg::Options::=--force-confold -y -q --no-install-recommends \
        --allow-change-held-packages "$@"
}

# What apt would remove, one a line. Words as those of `exchange`.
would_remove() { exchange -s "$@" | awk '$1 == "Remv" {print $2}' | sort; }

# Debian's packages make the account; these do not. Its number is the one that Debian gives it.
ensure_slurm_account() {
    local number=''
    if id -u slurm >/dev/null 2>&1; then return 0; fi
    if ! getent passwd 64030 >/dev/null && ! getent group 64030 >/dev/null; then number=64030; fi
    useradd --system --user-group ${number:+--uid "$number"} --no-create-home --home-dir /nonexistent \
        --shell /usr/sbin/nologin slurm
}

# As it was, with the packages that are there.
start_again() { [ $# -eq 0 ] || systemctl start "$@" || note "$* cannot be started again"; }

# What slurmctld knows, as it is when it has ended: no release reads what a newer one has written. Words are the daemons
# that start again where it cannot be saved.
save_state() {
    local state=/var/lib/slurm/slurmctld saved=$STATE_DIR/slurm/state-before-$SLURM_RELEASE.tar
    # What this release itself has written already is nothing to go back to.
    if [ ! -d "$state" ] || [ "$(cat "$SLURM_INSTALLED" 2>/dev/null)" = "$(release_kind)" ]; then return 0; fi
    mkdir -p "${saved%/*}"
    if ! (umask 077 && as_user slurm 900 "$STATE_MOST" tar -c -C "${state%/*}" "${state##*/}" </dev/null >"$saved.new"); then
        rm -f "$saved.new"
        start_again "$@"
        fail "what slurmctld knows cannot be saved as $saved" "make room there on $HOST_NAME, then run up again"
    fi
    mv -fT "$saved.new" "$saved"
    note "what slurmctld knows is saved as $saved"
}

# Have a machine's Slurm be that of a folder: the folder, and packages of it. What runs of Slurm ends before, and starts
# in the step's own place; jobs go on, each under the program that started it.
install_release() {
    local from=$1 wanted=("${@:2}") folder=$STATE_DIR/slurm-install path old removed beyond room unit at running=() words=() reason
    if [ "$(cat "$SLURM_INSTALLED" 2>/dev/null)" = "$(release_kind)" ] && [ -z "$(missing_of "${wanted[@]}")" ] &&
        [ -z "$(distribution_slurm)" ]; then return 0; fi
    # What counts are the copies, which nobody else can change afterwards.
    rm -rf "$folder"
    install -d -m 0700 "$folder"
    cp "$from"/* "$folder/"
    { has_release "$folder" && as_listed "$folder"; } || fail "the packages in $from are not whole, or not those of the list" \
        "run up of the cluster again: they are brought anew"
    # All of a release have one version: with what is wanted go those that came with another one.
    readarray -t -O "${#wanted[@]}" wanted < <(slurm_packages_of slurm-smd | grep -xF "$(printf '%s\n' "${RELEASE_PACKAGES[@]}")" |
        grep -vxF "$(printf '%s\n' "${wanted[@]}")")
    for path in "${wanted[@]}"; do words+=("$(compgen -G "$folder/${path}_*.deb")"); done
    readarray -t old < <(distribution_slurm)
    words=(install "${words[@]}" "${old[@]/%/-}")
    when_unlocked dpkg --configure -a || note "some packages of this machine cannot be configured; going on"
    refresh_package_lists
    removed=$(would_remove "${words[@]}") || fail "apt cannot install Slurm $SLURM_RELEASE here" \
        "see above and 'apt-get update' on $HOST_NAME, then run up again"
    beyond=$(comm -23 <(printf '%s' "$removed${removed:+$'\n'}") <(printf '%s\n' "${old[@]}" | sort) | paste -sd ' ')
    [ -z "$beyond" ] || fail "installing Slurm $SLURM_RELEASE would remove $beyond too" \
        "remove it yourself if nobody needs it on $HOST_NAME, then run up again"
    room=$(df -Pm /usr | awk 'NR == 2 {print $4}')
    [ "$room" -ge "$INSTALL_ROOM_MB" ] || fail "installing Slurm $SLURM_RELEASE takes up to $INSTALL_ROOM_MB MB, and /usr has $room" \
        "make room there on $HOST_NAME, then run up again"
    # What comes from elsewhere is here before anything ends.
    if ! when_unlocked exchange --download-only "${words[@]}"; then
        reason=$(fetch_reason <<<"$APT_SAID")
        fail "apt cannot fetch what Slurm $SLURM_RELEASE needs here${reason:+ ($reason)}" \
            "$(fetch_remedy "$reason" "see above and 'apt-get update' on $HOST_NAME, then run up again")"
    fi
    ensure_slurm_account
    # The head node's controller goes first, and its nodes' steps come after its own.
    if systemctl -q is-active slurmctld; then
        hold_older_nodes "$SLURM_RELEASE" || fail "slurmctld does not keep jobs from nodes that are older than $SLURM_RELEASE" \
            "see 'journalctl -u slurmctld' on $HOST_NAME, then run up again"
    else
        take_turn
    fi
    note "installing Slurm $SLURM_RELEASE${removed:+ in the place of ${removed//$'\n'/ }}"
    for unit in "${SLURM_DAEMONS[@]}"; do
        if systemctl -q is-active "$unit"; then running+=("$unit"); fi
    done
    for ((at = ${#running[@]} - 1; at >= 0; at--)); do systemctl stop "${running[at]}"; done
    save_state "${running[@]}"
    printf '%s\n' "${wanted[@]}" >>"$STATE_DIR/packages"
    if ! when_unlocked unstarted exchange "${words[@]}" || [ -n "$(missing_of "${wanted[@]}")" ]; then
        start_again "${running[@]}"
        reason=$(fetch_reason <<<"$APT_SAID")
        fail "apt could not install Slurm $SLURM_RELEASE${reason:+ ($reason)}" \
            "$(fetch_remedy "$reason" "see above and 'apt-get -f install' on $HOST_NAME, then run up again")"
    fi
    rm -rf "$folder"
    ensure_file "$SLURM_PIN" 0644 root:root "# Written by tailrack: the cluster has a release of Slurm of its own.
Package: src:slurm-wlm
Pin: release *
Pin-Priority: -1"
    slurm_packages_of slurm-smd | xargs -r apt-mark hold
    ensure_file "$SLURM_INSTALLED" 0644 root:root "$(release_kind)"
    forget_other_releases
}

# What was built here for what is not wanted any more.
forget_other_releases() {
    [ ! -d "$STATE_DIR/slurm-releases" ] ||
        find "$STATE_DIR/slurm-releases" -mindepth 1 -maxdepth 1 ! -name "$(release_kind)" -exec rm -rf {} +
}
