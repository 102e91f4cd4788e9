#!/bin/bash
# uses: costs/book
# The head node's own lines.
#
# NODE_NAME, NODE_PRICE   as in register.sh, of the head node

costs_services() {
    open_costs "$NODE_NAME" "$NODE_PRICE"
    forget_old_costs
}
