#!/bin/bash
# uses: costs/book
# When a node came, and when it left.
#
# NODE_NAME
# NODE_PRICE   `2.05 USD` an hour, empty where the config does not say

costs_register() { open_costs "$NODE_NAME" "$NODE_PRICE"; }

costs_register_forget() { close_costs "$NODE_NAME"; }
