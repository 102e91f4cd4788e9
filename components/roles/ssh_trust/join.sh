#!/bin/bash
# uses: ssh_trust/trust
# What the head node has to know of this machine's sshd.

sshd_port() { sshd -T 2>/dev/null | awk '$1 == "port" {print $2; exit}'; }

ssh_trust_join() {
    result sshd_port "$(sshd_port)"
    result host_key "$(json_string "$(host_key)")"
}
