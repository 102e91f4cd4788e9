#!/bin/bash
# uses: costs/book
# Record when a node joins and leaves.
#
# NODE_NAME
# NODE_PRICE   price per hour, such as `2.05 USD`; empty without one in the config

costs_register() { open_costs "$NODE_NAME" "$NODE_PRICE"; }

costs_register_forget() { close_costs "$NODE_NAME"; }
