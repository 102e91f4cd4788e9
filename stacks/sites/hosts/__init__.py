"""Sites of kind `hosts`: your own machines, reached by SSH with a pinned host key."""

from stacks.sites.hosts.inventory import complete
from stacks.sites.hosts.model import HostsSite, nodes
from stacks.sites.kind import Kind

KIND = Kind(HostsSite, nodes, "stacks.sites.hosts.machines", complete, lists_head=True)
