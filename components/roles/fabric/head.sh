#!/bin/bash
# uses: fabric/place fabric/check_path
# The fabric of the head node, where it runs jobs: the first one of its site, whom the others prove theirs with. Nobody but
# itself asks it to take part.
#
# HEAD_ADDRESS         its tailnet address
# HEAD_COMPUTES        true where it runs jobs
# HEAD_FABRIC_PROGRAM  text of the program that proves again what could not be proven

fabric_head() {
    fabric_check_path
    ensure_file /usr/local/sbin/tailrack-fabric-again 0755 root:root "$HEAD_FABRIC_PROGRAM"
    reload_units tailrack-fabric-again.timer tailrack-fabric-again.service
    enable_units --now tailrack-fabric-again.timer
    if [ "$HEAD_COMPUTES" = true ]; then place_in_fabric "$HEAD_ADDRESS"; fi
}
