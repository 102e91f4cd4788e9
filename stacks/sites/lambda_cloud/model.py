"""Settings of a site at Lambda."""

from typing import Literal

from stacks.sites.rented.model import RentedSite


class LambdaSite(RentedSite):
    """A site of machines at Lambda."""

    kind: Literal["lambda"]
    """Machines at Lambda, rented and returned with the stack."""
