#!/bin/bash
# uses: ssh_trust/authority ssh_trust/trust
# The authority's two keys, which never leave the head node, and its trust in what they sign.

ssh_trust_head() {
    ensure_authority
    trust_authority "$(public_key "$AUTHORITY_KEY")"
    result authority "$(json_string "$(public_key "$AUTHORITY_KEY")")"
    result leave_key "$(json_string "$(public_key "$LEAVE_KEY")")"
}
