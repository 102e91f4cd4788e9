#!/bin/bash
# uses: machine/keep_running ssh_trust/sshd ssh_trust/trust
# What the head node has to know of this machine's sshd.

ssh_trust_join() {
    keep_running ssh.service
    result sshd_port "$(sshd_port)"
    result host_key "$(json_string "$(host_key)")"
}
