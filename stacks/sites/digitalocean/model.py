"""Settings of a site at DigitalOcean."""

from typing import Literal

from stacks.sites.hosts.ssh_types import Login
from stacks.sites.kind import kind_key
from stacks.sites.rented.model import ImageName, RentedSite, image_key, user_key


class DigitalOceanSite(RentedSite):
    """A site of droplets."""

    kind: Literal["digitalocean"] = kind_key("digitalocean", "droplets, rented and returned with the stack")
    image: ImageName = image_key("the image's slug; GPU droplets need one with NVIDIA's driver", "ubuntu-24-04-x64")
    user: Login = user_key("root")
