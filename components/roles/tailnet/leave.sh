#!/bin/bash
# uses: machine/retire
# Log out of the tailnet. systemd does it after this program has ended, because it cuts the head node's connection. The head node
# and the next join wait until the machine is gone from the tailnet. An adopted machine stays in its tailnet.
#
# NODE_ADOPT   true if the machine was in the tailnet before

tailnet_leave() {
    local rest="systemctl disable --now tailscaled" sources=/etc/apt/sources.list.d/tailscale.list
    # A killed join may have left its key.
    rm -f /run/tailrack-key.*
    retire tailrack-tailnet.service
    [ "$NODE_ADOPT" != true ] || return 0
    # The package stays, like all others; tailrack added its package source.
    if grep -qsxF tailscale /var/lib/tailrack/packages; then rm -f "$sources" /usr/share/keyrings/tailscale-archive-keyring.gpg; fi
    if grep -qsx enabled /var/lib/tailrack/tailnet-daemon; then rest="systemctl restart tailscaled"; fi
    # The one second lets the SSH session send its last output. Until the end the machine still counts as the cluster's and can be
    # asked to leave again.
    systemd-run -q --collect --unit=tailrack-logout /bin/sh -c \
        "timeout 20 tail --pid=$$ -s 0.1 -f /dev/null; sleep 1; timeout 60 tailscale logout; systemctl stop tailscaled; rm -f /var/lib/tailscale/tailscaled.state; $rest; rm -f /var/lib/tailrack/tailnet* /usr/local/sbin/tailrack-leave; rmdir /var/lib/tailrack"
}
