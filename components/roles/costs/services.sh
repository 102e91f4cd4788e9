#!/bin/bash
# uses: costs/book
# Record the head node's own periods.
#
# NODE_NAME, NODE_PRICE   as in register.sh, for the head node

costs_services() {
    open_costs "$NODE_NAME" "$NODE_PRICE"
    forget_old_costs
}
