#!/bin/bash
# uses: slurm/files
# The nodes that the stack is about to bring, before any of them is looked at: who is there already waits for them a while,
# so that slurmctld takes the files of all of them at once (reconfigure.sh).
#
# HEAD_EXPECTS   their names, one a line

slurm_expect() {
    expect_nodes "$HEAD_EXPECTS"
}
