#!/bin/bash
# uses: ssh_trust/authority ssh_trust/trust
# Create the authority's keys, which never leave the head node, and trust the authority here.

ssh_trust_head() {
    ensure_authority
    keep_authorities
    trust_authorities "$(cat "$AUTHORITY_TRUSTED")"
}
