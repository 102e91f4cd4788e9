#!/bin/bash
# uses: fabric/prove
# Prove the fabric of a node before its line goes into Slurm's files.
#
# NODE_ADDRESS   tailnet address of the node

fabric_register() { prove_fabric "$NODE_ADDRESS"; }
