#!/bin/bash
# uses: ssh_trust/authority ssh_trust/trust
# The authority's two keys, which never leave the head node, and its trust in what the authority signs.

ssh_trust_head() {
    ensure_authority
    keep_authorities
    trust_authorities "$(cat "$AUTHORITY_TRUSTED")"
}
