#!/bin/bash
# uses: fabric/prove fabric/check_path
# Prove the fabric of a head node that runs jobs, with which other nodes of its site then prove theirs; install the
# program that retries failed proofs.
#
# HEAD_ADDRESS         tailnet address of the head node
# HEAD_COMPUTES        true if it runs jobs
# HEAD_FABRIC_PROGRAM  text of the program that retries failed proofs

fabric_head() {
    fabric_check_path
    ensure_file /usr/local/sbin/tailrack-fabric-again 0755 root:root "$HEAD_FABRIC_PROGRAM"
    reload_units tailrack-fabric-again.timer tailrack-fabric-again.service
    enable_units --now tailrack-fabric-again.timer
    if [ "$HEAD_COMPUTES" = true ]; then prove_fabric "$HEAD_ADDRESS"; fi
}
