#!/bin/bash
# uses: tailnet/membership
# Name the firewalls on this machine that may block other members. Only for messages: the rules are not evaluated.

# Succeed if an nftables input chain drops by default (this includes ufw's and iptables' chains).
drops_by_default() { nft list ruleset 2>/dev/null | grep 'hook input ' | grep 'policy drop' >/dev/null; }

# Print their names, joined by +.
own_firewall() {
    local firewalls=''
    if systemctl -q is-active firewalld; then firewalls=firewalld; fi
    if command -v ufw >/dev/null && ufw status 2>/dev/null | grep '^Status: active' >/dev/null; then firewalls+=${firewalls:+\+}ufw; fi
    if drops_by_default; then firewalls+=${firewalls:+\+}nftables; fi
    if [ "$(preference ShieldsUp)" = true ]; then firewalls+=${firewalls:+\+}shields-up; fi
    printf '%s' "$firewalls"
}
