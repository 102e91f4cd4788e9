#!/bin/bash
# Refuse an invalid answer of the head node.
#
# HEAD_PROBLEM   the error in the head node's answer (components/steps/results.py); empty if it is valid

machine_node() {
    [ -z "$HEAD_PROBLEM" ] || fail "the head node's answer for $HOST_NAME is invalid: $HEAD_PROBLEM" \
        "check the head node: some program there answers instead of tailrack's steps"
}
