#!/bin/bash
# uses: ssh_trust/authority ssh_trust/trust
# The head node shows a certificate as well, to users who log in to it from a node.
#
# HEAD_ADDRESS   its tailnet address

ssh_trust_services() { show_certificate "$(certificate_for "$HOST_NAME" "$HEAD_ADDRESS" "$(host_key)")"; }
