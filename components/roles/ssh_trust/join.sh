#!/bin/bash
# uses: machine/keep_running ssh_trust/sshd ssh_trust/trust
# Report the sshd port and the host key to the head node.

ssh_trust_join() {
    keep_running ssh.service
    result sshd_port "$(sshd_port)"
    result host_key "$(json_string "$(host_key)")"
}
