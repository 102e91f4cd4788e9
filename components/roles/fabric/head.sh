#!/bin/bash
# uses: fabric/prove fabric/check_path
# Prove the fabric of a head node that runs jobs, with which other nodes of its site then prove theirs; install the
# program that retries failed proofs.
#
# HEAD_ADDRESS                           tailnet address of the head node
# HEAD_COMPUTES                          true if it runs jobs
# HEAD_FABRIC_PLAN, HEAD_FABRIC_VALUES   plan and values of the program that retries failed proofs, as JSON
# FABRIC_AGAIN_COMMAND                   text of that program

fabric_head() {
    fabric_check_path
    ensure_files /etc/tailrack/plans/fabric-again.json 0644 root:root "$HEAD_FABRIC_PLAN"$'\n'"$HEAD_FABRIC_VALUES" \
        /usr/local/sbin/tailrack-fabric-again 0755 root:root "$FABRIC_AGAIN_COMMAND"
    reload_units tailrack-fabric-again.timer tailrack-fabric-again.service
    enable_units --now tailrack-fabric-again.timer
    if [ "$HEAD_COMPUTES" = true ]; then prove_fabric "$HEAD_ADDRESS"; fi
}
