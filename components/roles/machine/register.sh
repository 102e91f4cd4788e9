#!/bin/bash
# A node whose answers do not hold is no member.
#
# NODE_NAME, NODE_PROBLEM   what is wrong with them (components/steps/results.py), empty where nothing is

machine_register() {
    [ -z "$NODE_PROBLEM" ] || fail "$NODE_NAME is not taken as a member: $NODE_PROBLEM" \
        "look at $NODE_NAME itself: something there answers in the place of tailrack's steps"
}
