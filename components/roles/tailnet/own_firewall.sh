#!/bin/bash
# uses: tailnet/membership
# Name the firewalls on this machine that may block other members. Only for messages: the rules are not evaluated.

# Succeed if an nftables input chain drops by default (this includes ufw's and iptables' chains).
drops_by_default() { nft list ruleset 2>/dev/null | grep 'hook input ' | grep 'policy drop' >/dev/null; }

# Print their names, joined by +.
own_firewall() {
    local found=''
    if systemctl -q is-active firewalld; then found=firewalld; fi
    if command -v ufw >/dev/null && ufw status 2>/dev/null | grep '^Status: active' >/dev/null; then found+=${found:+\+}ufw; fi
    if drops_by_default; then found+=${found:+\+}nftables; fi
    if [ "$(preference ShieldsUp)" = true ]; then found+=${found:+\+}shields-up; fi
    printf '%s' "$found"
}
