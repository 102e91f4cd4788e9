"""Sites of kind `nebius`: machines at Nebius that the stack creates and deletes."""

from stacks.sites.kind import Kind
from stacks.sites.nebius.checks import check
from stacks.sites.nebius.model import NebiusSite, nodes
from stacks.sites.pools import claims

KIND = Kind(NebiusSite, claims, check, nodes, "stacks.sites.nebius.machines")
