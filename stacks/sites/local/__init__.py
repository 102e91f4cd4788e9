"""Sites of kind `local`: the machine that runs tailrack, as the head node."""

from stacks.sites.kind import Kind
from stacks.sites.local.model import LocalSite, nodes

KIND = Kind(LocalSite, nodes, "stacks.sites.local.machines", lists_head=True, is_here=True)
