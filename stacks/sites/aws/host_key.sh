#!/bin/bash
# Create a host key that only this machine knows, and delete the first one after a quarter of an hour. The first key
# came with the cloud's user data, which every process on the machine can read. Until it is deleted, this step can run
# again if its answer was lost.

OWN=/etc/ssh/ssh_host_ed25519_key
BORN_WITH=/etc/ssh/ssh_host_ecdsa_key
UNITS=/etc/systemd/system/tailrack-born-with

up() {
    wait_for_cloud_init
    if [ ! -s "$OWN" ] || [ ! -s "$OWN.pub" ]; then
        rm -f "$OWN" "$OWN.pub"
        ssh-keygen -q -t ed25519 -N '' -C '' -f "$OWN"
    fi
    forget_later
    # A started sshd keeps the keys that it has read.
    systemctl try-restart ssh.service
    result host_key "$(json_string "$(cut -d ' ' -f 1,2 "$OWN.pub")")"
}

# Install a timer on the disk; a reboot starts it again until the key is deleted. Then both units are deleted too,
# because a later key of the same kind is the machine's own.
forget_later() {
    ensure_file "$UNITS.service" 0644 root:root "[Unit]
Description=Deletes the host key from the user data

[Service]
Type=oneshot
ExecStart=rm -f $BORN_WITH $BORN_WITH.pub /etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_rsa_key.pub
ExecStart=systemctl try-restart ssh.service
ExecStart=systemctl disable tailrack-born-with.timer
ExecStart=rm -f $UNITS.service $UNITS.timer"
    ensure_file "$UNITS.timer" 0644 root:root "[Unit]
Description=A quarter of an hour for the first connection

[Timer]
OnActiveSec=15min

[Install]
WantedBy=timers.target"
    systemctl daemon-reload
    systemctl enable -q --now tailrack-born-with.timer
}
