#!/bin/bash
# A node is given what the head node has made for it, where that is what it should be.
#
# HEAD_PROBLEM   what is wrong with the head node's answer (components/steps/results.py), empty where nothing is

machine_node() {
    [ -z "$HEAD_PROBLEM" ] || fail "what the head node has for $HOST_NAME is not taken: $HEAD_PROBLEM" \
        "look at the head node itself: something there answers in the place of tailrack's steps"
}
