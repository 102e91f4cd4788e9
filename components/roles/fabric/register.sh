#!/bin/bash
# uses: fabric/place
# The fabric of a node, before its line goes into Slurm's files.
#
# NODE_ADDRESS   its tailnet address

fabric_register() { place_in_fabric "$NODE_ADDRESS"; }
