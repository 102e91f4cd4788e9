#!/bin/bash
# The controller. Configuration is served to all nodes from here (configless); it is changed by reconfiguring, and
# the daemon is started only where it does not run.
#
# SLURM_FILES    `name` lines of the files below
# SLURM_FILE_*   their texts (slurm.conf, gres.conf, ...): dots and dashes become underscores in the variable's name
: "${SLURM_FILES:?}"

SLURM_DIR=/etc/slurm

controller_answers() { scontrol ping 2>/dev/null | grep -q 'is UP'; }

write_slurm_files() {
    local name variable
    while read -r name; do
        variable="SLURM_FILE_${name//[.-]/_}"
        variable=${variable^^}
        ensure_file "$SLURM_DIR/$name" 0644 root:root "${!variable}"
    done <<<"$SLURM_FILES"
}

ensure_slurmctld() {
    install -d -o slurm -g slurm -m 0755 /var/lib/slurm /var/log/slurm
    install -d -o slurm -g slurm -m 0700 /var/lib/slurm/slurmctld
    CHANGED=
    write_slurm_files
    local files_changed=$CHANGED
    CHANGED=
    ensure_file /etc/systemd/system/slurmctld.service.d/tailrack.conf 0644 root:root "[Unit]
After=munge.service tailrack-tailnet.service tailrack-names.service
Wants=munge.service
Requires=tailrack-names.service

[Service]
Restart=on-failure
RestartSec=5"
    systemctl daemon-reload
    systemctl enable -q slurmctld
    if ! systemctl -q is-active slurmctld; then
        systemctl restart slurmctld
    elif [ -n "$files_changed" ]; then
        note "reconfiguring slurmctld"
        scontrol reconfigure || fail "slurmctld refuses the new configuration and goes on with the old one" \
            "see 'journalctl -u slurmctld' on $HOST_NAME and tailrack:slurm.settings"
    fi
    wait_until 60 controller_answers || fail "slurmctld does not answer" "see 'journalctl -u slurmctld' on $HOST_NAME"
}
