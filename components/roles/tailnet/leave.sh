#!/bin/bash
# uses: machine/retire
# Log out of the tailnet. As soon as this program has ended, by systemd: it cuts the very connection over which the head
# node asked for it. Over is leaving when the machine is gone from the tailnet; the head node waits for that, and so does
# a join. What was adopted stays in its tailnet.
#
# NODE_ADOPT   true where the machine was in the tailnet before

tailnet_leave() {
    local rest="systemctl disable --now tailscaled" sources=/etc/apt/sources.list.d/tailscale.list
    # What a join that was killed has left.
    rm -f /run/tailrack-key.*
    retire tailrack-tailnet.service
    [ "$NODE_ADOPT" != true ] || return 0
    # The package stays, as all do; the source that it came from was the cluster's.
    if grep -qsxF tailscale /var/lib/tailrack/packages; then rm -f "$sources" /usr/share/keyrings/tailscale-archive-keyring.gpg; fi
    if grep -qsx enabled /var/lib/tailrack/tailnet-daemon; then rest="systemctl restart tailscaled"; fi
    # The second after the end is for the last words of an SSH session. The machine counts as the cluster's to the last, and
    # can be asked to leave again.
    systemd-run -q --collect --unit=tailrack-logout /bin/sh -c \
        "timeout 20 tail --pid=$$ -s 0.1 -f /dev/null; sleep 1; timeout 60 tailscale logout; systemctl stop tailscaled; rm -f /var/lib/tailscale/tailscaled.state; $rest; rm -f /var/lib/tailrack/tailnet* /usr/local/sbin/tailrack-leave; rmdir /var/lib/tailrack"
}
