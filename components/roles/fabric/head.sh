#!/bin/bash
# uses: fabric/place
# The fabric of the head node, where it runs jobs: the first one of its site, whom the others prove theirs with.
#
# HEAD_ADDRESS    its tailnet address
# HEAD_COMPUTES   true where it runs jobs

fabric_head() {
    if [ "$HEAD_COMPUTES" = true ]; then place_in_fabric "$HEAD_ADDRESS"; fi
}
