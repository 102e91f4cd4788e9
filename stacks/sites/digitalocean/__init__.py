"""Sites of kind `digitalocean`: droplets that the stack rents and returns."""

from typing import Literal

from stacks.sites.hosts.ssh_types import Login
from stacks.sites.kind import Kind
from stacks.sites.rented.model import ImageName, RentedSite, nodes


class DigitalOceanSite(RentedSite):
    """A site of droplets."""

    kind: Literal["digitalocean"]
    """Droplets, rented and returned with the stack."""
    image: ImageName = "ubuntu-24-04-x64"
    """The image's slug; GPU droplets need one with NVIDIA's driver."""
    user: Login = "root"
    """The image's account for log-ins: root, or one with password-less sudo."""


KIND = Kind(DigitalOceanSite, nodes, "stacks.sites.rented.machines", rents=True)
