"""What names of networks are: for the config, machines' answers, and the program on them."""

import ipaddress

# Also the characters that /sys and Slurm's files take as they are; 15 are the kernel's limit.
INTERFACE = r"[A-Za-z][A-Za-z0-9_.-]{0,14}"
DEVICE = r"[A-Za-z][A-Za-z0-9_-]{0,30}"

TAILNET = ipaddress.IPv4Network("100.64.0.0/10")  # RFC 6598; Tailscale gives its addresses from it
# What a site may say of its fabric, besides the name of an interface.
AUTO, ON_THE_TAILNET = "auto", "tailnet"
NO_RDMA = "none"  # what it may say of RDMA, besides AUTO and names of devices
