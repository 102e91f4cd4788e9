#!/bin/bash
# A host key that nobody but this machine has seen, beside the one it was born with, which goes a quarter of an hour later:
# that one came with the user data of its cloud, which every process on the machine can read. Until it goes this step may
# come again, where its answer was lost on the way.

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
    # A started sshd goes on with the keys that it has read.
    systemctl try-restart ssh.service
    result host_key "$(json_string "$(cut -d ' ' -f 1,2 "$OWN.pub")")"
}

# A timer on the disk, which a reboot begins anew until the key is gone. Then both units go: a later key of the same kind
# is one that the machine has made itself.
forget_later() {
    ensure_file "$UNITS.service" 0644 root:root "[Unit]
Description=Forgets the host key that came with the user data

[Service]
Type=oneshot
ExecStart=rm -f $BORN_WITH $BORN_WITH.pub /etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_rsa_key.pub
ExecStart=systemctl try-restart ssh.service
ExecStart=systemctl disable tailrack-born-with.timer
ExecStart=rm -f $UNITS.service $UNITS.timer"
    ensure_file "$UNITS.timer" 0644 root:root "[Unit]
Description=A quarter of an hour for the first contact

[Timer]
OnActiveSec=15min

[Install]
WantedBy=timers.target"
    systemctl daemon-reload
    systemctl enable -q --now tailrack-born-with.timer
}
