#!/bin/bash
# Refuse to register a node with an invalid answer.
#
# NODE_NAME, NODE_PROBLEM   the error in its answer (components/steps/results.py); empty if it is valid

machine_register() {
    [ -z "$NODE_PROBLEM" ] || fail "$NODE_NAME cannot register: $NODE_PROBLEM" \
        "check $NODE_NAME: some program there answers instead of tailrack's steps"
}
