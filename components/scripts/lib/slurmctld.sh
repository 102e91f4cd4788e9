#!/bin/bash
# The controller. Configuration is served to all nodes from here (configless); it is changed by reconfiguring, and
# the daemon is started only where it does not run.
#
# SLURM_FILES    `name` lines of the files below
# SLURM_FILE_*   their texts (slurm.conf, gres.conf, ...): dots and dashes become underscores in the variable's name
: "${SLURM_FILES:?}"

SLURM_DIR=/etc/slurm
# The files that slurmctld took last. Where it refuses others, these come back, so that the machine is as the stack's
# state says and a step that was cut off is not taken for done.
TAKEN_DIR=$STATE_DIR/slurm

controller_answers() { scontrol ping 2>/dev/null | grep -q 'is UP'; }

write_slurm_files() {
    local name variable
    while read -r name; do
        variable="SLURM_FILE_${name//[.-]/_}"
        variable=${variable^^}
        ensure_file "$SLURM_DIR/$name" 0644 root:root "${!variable}"
    done <<<"$SLURM_FILES"
}

slurm_files_taken() {
    local name
    while read -r name; do
        cmp -s "$SLURM_DIR/$name" "$TAKEN_DIR/$name" || return 1
    done <<<"$SLURM_FILES"
}

keep_taken_files() {
    local name
    while read -r name; do
        install -D -m 0644 "$SLURM_DIR/$name" "$TAKEN_DIR/$name"
    done <<<"$SLURM_FILES"
}

# Put the last files that worked back, quote slurmctld since the given second, and stop.
refuse_slurm_files() {
    journalctl -u slurmctld --since "@$1" -n 8 -o cat --no-pager
    if [ -d "$TAKEN_DIR" ]; then
        cp -p "$TAKEN_DIR"/* "$SLURM_DIR/"
        systemctl -q is-active slurmctld || systemctl restart slurmctld || note "slurmctld does not start with the old files"
    fi
    fail "$2" "correct tailrack:slurm.settings; 'journalctl -u slurmctld' on $HOST_NAME says more"
}

ensure_slurmctld() {
    install -d -o slurm -g slurm -m 0755 /var/lib/slurm /var/log/slurm
    install -d -o slurm -g slurm -m 0700 /var/lib/slurm/slurmctld
    write_slurm_files
    ensure_file /etc/systemd/system/slurmctld.service.d/tailrack.conf 0644 root:root "[Unit]
After=munge.service tailrack-tailnet.service tailrack-names.service
Wants=munge.service
Requires=tailrack-names.service

[Service]
Restart=on-failure
RestartSec=5"
    systemctl daemon-reload
    systemctl enable -q slurmctld
    local begin
    begin=$(date +%s)
    if ! systemctl -q is-active slurmctld; then
        systemctl restart slurmctld || refuse_slurm_files "$begin" "slurmctld does not start with this configuration"
    elif ! slurm_files_taken; then
        note "reconfiguring slurmctld"
        scontrol reconfigure || refuse_slurm_files "$begin" \
            "slurmctld refuses the new configuration and goes on with the old one"
    fi
    wait_until 60 controller_answers || fail "slurmctld does not answer" "see 'journalctl -u slurmctld' on $HOST_NAME"
    keep_taken_files
}
