#!/bin/bash
# Names of all nodes resolve on all nodes, without a list of them anywhere: tailscaled answers for every machine of
# the tailnet at 100.100.100.100, and systemd-resolved asks it for names without a dot. This machine's own name
# means its tailnet address, because Slurm's daemons bind to what their own name resolves to.

# shellcheck disable=SC2034  # read by the steps
NAMES_PACKAGES=(systemd-resolved libnss-resolve)

ensure_names() {
    ensure_file /usr/local/sbin/tailrack-names 0755 root:root "#!/bin/bash
# Written by tailrack, run by tailrack-names.service at every start of tailscaled.
set -euo pipefail
name=$HOST_NAME
address=\$(tailscale ip -4)
suffix=\$(tailscale status --json | jq -r .MagicDNSSuffix)
# Written in place: in a container the file is a mount and cannot be replaced.
hosts=\$(awk -v name=\"\$name\" -v address=\"\$address\" '
    BEGIN { print address, name, \"# tailrack\" }
    /# tailrack\$/ { next }
    /^[[:space:]]*#/ || NF == 0 { print; next }
    {
        line = \$1; left = 0
        for (i = 2; i <= NF; i++) {
            if (\$i ~ /^#/) { for (; i <= NF; i++) line = line \" \" \$i; break }
            if (\$i != name) { line = line \" \" \$i; left++ }
        }
        if (left) print line
    }' /etc/hosts)
[ \"\$hosts\" = \"\$(cat /etc/hosts)\" ] || printf '%s\n' \"\$hosts\" >/etc/hosts
resolvectl dns tailscale0 100.100.100.100
resolvectl domain tailscale0 \"\$suffix\"
resolvectl default-route tailscale0 no"
    ensure_file /etc/systemd/system/tailrack-names.service 0644 root:root "[Unit]
Description=Names of the cluster's nodes
After=tailrack-tailnet.service systemd-resolved.service
Requires=tailrack-tailnet.service
Wants=systemd-resolved.service
PartOf=tailscaled.service systemd-resolved.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/tailrack-names

[Install]
WantedBy=multi-user.target tailscaled.service"
    systemctl daemon-reload
    CHANGED=
    # Else every machine of the provider's network is asked for a name without a dot: anybody there could answer, and a
    # name that nobody has fails after seconds instead of at once.
    ensure_file /etc/systemd/resolved.conf.d/tailrack.conf 0644 root:root "[Resolve]
LLMNR=no"
    if [ -n "$CHANGED" ]; then systemctl try-restart systemd-resolved.service; fi
    systemctl enable -q --now systemd-resolved.service
    systemctl enable -q --now tailrack-names.service
    # Not a restart of the unit: Slurm's daemons require it, and would be restarted with it.
    /usr/local/sbin/tailrack-names
}
