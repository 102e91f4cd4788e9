"""Join all machines in one tailnet: tailscaled, a fixed host name and a tag."""

import ipaddress

from components.roles.cluster_settings import ClusterSettings
from components.roles.facts import matching, version
from components.roles.role import Role, unit
from components.settings.network_names import TAILNET

# A machine's report of its firewalls.
_FIREWALLS = r"((firewalld|ufw|nftables|shields-up)(\+(firewalld|ufw|nftables|shields-up)){0,3})?"
UNIT = "tailrack-tailnet.service"


def role(settings: ClusterSettings) -> Role:
    """Return the role. Packages come before the tailnet; tailscale may come from its own package source."""
    joined = {"tailnet_ip": _tailnet_address, "firewall": matching(_FIREWALLS), "tailscale_version": version}
    return Role(
        "tailnet",
        modules=("host", "login", "pod"),
        after=("machine", "restore"),
        values={"tag": settings.tailnet.tag},
        # The identity: a head node that restores it keeps the address that nodes know.
        state=("/var/lib/tailscale/tailscaled.state", "/var/lib/tailrack/tailnet"),
        packages={"join": ("jq",)},
        files={"join": (unit("tailnet", UNIT),)},
        facts={
            "join": joined,
            "pod_join": joined,
            "register": {"path": matching(r"direct|relay|peer-relay")},
        },
        on_pods=("check_path", "register"),
    )


def _tailnet_address(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    address = ipaddress.IPv4Address(value)
    if address not in TAILNET or str(address) != value:
        raise ValueError
    return value
