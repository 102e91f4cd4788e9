"""Sites of kind `gcp`: Compute Engine instances that the stack creates and deletes."""

from stacks.sites.gcp.checks import check
from stacks.sites.gcp.model import GcpSite, nodes
from stacks.sites.kind import Kind
from stacks.sites.pools import claims

KIND = Kind(GcpSite, claims, check, nodes, "stacks.sites.gcp.machines")
