#!/bin/bash
# uses: tailnet/membership
# What on this machine itself may keep others from it although it is in the tailnet. For words only: rules are not judged.

# Whether a chain of nftables drops what it does not let in. (ufw's and iptables' are among them.)
drops_by_default() { nft list ruleset 2>/dev/null | grep 'hook input ' | grep 'policy drop' >/dev/null; }

# Their names, with + between.
own_firewall() {
    local found=''
    if systemctl -q is-active firewalld; then found=firewalld; fi
    if command -v ufw >/dev/null && ufw status 2>/dev/null | grep '^Status: active' >/dev/null; then found+=${found:+\+}ufw; fi
    if drops_by_default; then found+=${found:+\+}nftables; fi
    if [ "$(preference ShieldsUp)" = true ]; then found+=${found:+\+}shields-up; fi
    printf '%s' "$found"
}
