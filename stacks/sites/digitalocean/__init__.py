"""Sites of kind `digitalocean`: droplets that the stack rents and returns."""

from stacks.sites.digitalocean.model import DigitalOceanSite
from stacks.sites.kind import Kind
from stacks.sites.rented.model import nodes

KIND = Kind(DigitalOceanSite, nodes, "stacks.sites.rented.machines", rents=True)
