"""A machine as it is: what a cluster could have put there, changed or left running, as lines to compare."""

import re
from collections.abc import Sequence

from tests.lab.cluster import ClusterUnderTest

# Each a command that prints a line for every thing there is of a kind. Contents of files where people configure;
# elsewhere names, types, modes and owners: what daemons write changes by itself.
_CONFIGURED = "/etc /usr/local /opt /root /srv /home"
_LOOKS = {
    "file": f"find {_CONFIGURED} -xdev -type f -exec sha256sum {{}} + | awk '{{print substr($1, 1, 12), $2}}'",
    "path": f"find {_CONFIGURED} /var/lib /var/spool /var/log /export -xdev -printf '%p %y %m %U:%G %l\\n'",
    "unit file": "systemctl list-unit-files --no-legend --plain | awk '{print $1, $2}'",
    "unit": "systemctl list-units --no-legend --plain --state=active,failed | awk '{print $1, $3}'",
    "account": "getent passwd; getent group | sed 's/^/group /'",
    # Of others' rules there are none here but Docker's, which count what they have seen.
    "rule": "nft list ruleset | grep -E 'tailrack|ts-|tailscale'; ip rule; ip route",
    "mount": "findmnt -rn -o TARGET,FSTYPE",
    "listens": "ss -Hltunp | awk '{print $1, $5, $7}' | sed -E 's/pid=[0-9]+,fd=[0-9]+//g'",
    "port that nobody gets": (
        "for port in 2049 6816 6817 6818; do runuser -u nobody -- python3 -c 'import socket, sys; "
        'socket.socket().bind(("127.0.0.2", int(sys.argv[1])))\' $port || echo $port; done'
    ),
    "process": "ps -eo user:20,comm --no-headers | awk '{print $1, $2}'",
    "package": "dpkg-query -W -f '${Package} ${Version}\\n'",
    "kernel": "cat /proc/sys/net/ipv4/ip_local_reserved_ports; hostname; cat /etc/hostname",
}


def state_of(cluster: ClusterUnderTest, node: str) -> set[str]:
    """Return everything there is on a machine, a line each with its kind in front."""
    found = set()
    for kind, look in _LOOKS.items():
        found |= {
            f"{kind}: {line}" for line in cluster.attempt(node, f"({look}) 2>/dev/null").stdout.splitlines() if line
        }
    return found


def differences(before: set[str], after: set[str], allowed: Sequence[str]) -> list[str]:
    """Return what has come (+) and gone (-), but for lines that one of the regular expressions allows."""
    changed = [*(f"- {line}" for line in before - after), *(f"+ {line}" for line in after - before)]
    return sorted(line for line in changed if not any(re.search(one, line) for one in allowed))
