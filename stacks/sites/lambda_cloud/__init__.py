"""Sites of kind `lambda`: machines at Lambda that the stack rents and returns."""

from typing import Literal

from stacks.sites.kind import Kind
from stacks.sites.rented.model import RentedSite, nodes


class LambdaSite(RentedSite):
    """A site of machines at Lambda."""

    kind: Literal["lambda"]
    """Machines at Lambda, rented and returned with the stack."""


KIND = Kind(LambdaSite, nodes, "stacks.sites.rented.machines", rents=True)
