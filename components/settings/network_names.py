"""Names of networks and mounts, in the config and in answers of machines."""

import ipaddress

# Characters that /sys and Slurm's files accept unquoted; the kernel allows 15.
INTERFACE = r"[A-Za-z][A-Za-z0-9_.-]{0,14}"
DEVICE = r"[A-Za-z][A-Za-z0-9_-]{0,30}"

TAILNET = ipaddress.IPv4Network("100.64.0.0/10")  # RFC 6598; Tailscale gives its addresses from it
# Values of a site's fabric, besides the name of an interface.
AUTO, ON_THE_TAILNET = "auto", "tailnet"
NO_RDMA = "none"  # a value of a site's RDMA, besides AUTO and names of devices
NFS, PRESENT = "nfs4", "present"  # kinds of storage.mounts


def is_interface(fabric: str) -> bool:
    """Return whether a site's fabric is the name of an interface."""
    return fabric not in (AUTO, ON_THE_TAILNET)


def feature_of(path: str) -> str:
    """Return the Slurm feature of a mount, such as `mount-data` for /data."""
    return f"mount-{path.strip('/').replace('/', '-')}"
