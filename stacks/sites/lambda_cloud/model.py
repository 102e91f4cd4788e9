"""Settings of a site at Lambda."""

from typing import Literal

from components.settings.section import key
from stacks.sites.rented.model import RentedSite


class LambdaSite(RentedSite):
    """A site of machines at Lambda."""

    kind: Literal["lambda"] = key()
    """Machines at Lambda, rented and returned with the stack."""
