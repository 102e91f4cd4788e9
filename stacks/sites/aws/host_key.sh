#!/bin/bash
# A host key that nobody but this machine has seen, beside the one it was born with, which goes a quarter of an hour later:
# that one came with the user data of its cloud, which every process on the machine can read. Until it goes this step may
# come again, where its answer was lost on the way.

OWN=/etc/ssh/ssh_host_ed25519_key
BORN_WITH=/etc/ssh/ssh_host_ecdsa_key

up() {
    wait_for_cloud_init
    if [ ! -s "$OWN" ] || [ ! -s "$OWN.pub" ]; then
        rm -f "$OWN" "$OWN.pub"
        ssh-keygen -q -t ed25519 -N '' -C '' -f "$OWN"
    fi
    # A later key of the same kind is one that the machine has made itself.
    systemctl -q is-active tailrack-born-with.timer || systemd-run -q --unit=tailrack-born-with --on-active=15min /bin/bash -c \
        "rm -f $BORN_WITH $BORN_WITH.pub /etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_rsa_key.pub && systemctl try-restart ssh.service"
    # A started sshd goes on with the keys that it has read.
    systemctl try-restart ssh.service
    result host_key "$(json_string "$(cut -d ' ' -f 1,2 "$OWN.pub")")"
}
