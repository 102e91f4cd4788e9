#!/bin/bash
# uses: costs/book
# End a node's period, for the program that removes expired nodes (slurm/expire.sh).
#
# NODE_NAME

costs_register_forget() { close_costs "$NODE_NAME"; }
