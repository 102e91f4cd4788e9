"""All machines' names resolve on all machines, from a list that the head node keeps.

If a name does not resolve, slurmctld's requests end with "Socket timed out". The head node publishes its members' names
and addresses on the share, which nodes cannot write; each machine keeps them in `/etc/hosts`, in lines that end in
`# tailrack`. Other sources of names fail: MagicDNS through systemd-resolved loses all names when another machine joins,
`--accept-dns=true` takes over `/etc/resolv.conf`, and root of a node can choose a name such as `localhost` that
`tailscale status` shows to every machine.

A machine's host name is its node's name, and names resolve to tailnet addresses: Slurm's daemons compare the host name
with slurm.conf and bind to its address.
"""

from components.roles.cluster_settings import ClusterSettings
from components.roles.program import launcher
from components.roles.role import File, Role, unit, unit_like

PROGRAM, UNIT, FOLLOW = "tailrack-names", "tailrack-names.service", "tailrack-names-follow.service"


def role(settings: ClusterSettings) -> Role:
    """Return the role, which is the same on every machine. The machine's DNS settings stay as they are."""
    # Slurm's daemons require the other unit, and would stop whenever this one stops.
    follow, about = f"/usr/local/sbin/{PROGRAM} follow", "Update names when machines join or leave"
    files = (
        File(f"/usr/local/sbin/{PROGRAM}", launcher("names"), mode="0755"),
        unit("names", UNIT),
        unit_like("daemon", FOLLOW, description=about, after=UNIT, command=follow),
    )
    made = tuple(file.path for file in files)
    return Role(
        "names",
        after=("tailnet", *settings.storage.mounted_by),
        on_pods=("register",),
        files={"join": files},
        # The join has no record (node/declared.py).
        made={"head": made, "node": made},
    )
