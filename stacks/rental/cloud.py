"""The interface of a cloud that rents machines. Each cloud has a module in `stacks/rental`.

A cloud without tags has names, or a container's environment (runpod.py). `user_data` is cloud-init's, as JSON; a cloud
without cloud-init takes the keys from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

# Tags of every machine, set by the call that rents it. With them it is found again if nothing else recorded it.
OWNER, STACK, SITE, NODE = "tailrack:owner", "tailrack:stack", "tailrack:site", "tailrack:node"
TAGS = (OWNER, STACK, SITE, NODE)

SSH_PORT = 22
BOOTING, READY, GONE = "booting", "ready", "gone"


@dataclass(frozen=True)
class Offer:
    """A machine type in a region.

    price       of an hour; None if unknown
    available   whether the cloud says that it has one now
    """

    type: str
    region: str
    price: float | None = None
    available: bool = True

    def too_dear(self, limit: float | None) -> bool:
        """Return whether the price is above a limit; an unknown price is above any."""
        return limit is not None and (self.price is None or self.price > limit)

    def __str__(self) -> str:
        return f"{self.type} in {self.region}"


@dataclass(frozen=True)
class Instance:
    """A rented machine. `state` is BOOTING, READY or GONE; a machine that is GONE costs nothing more.

    A cloud's module names the states that are GONE: one that it does not know still costs money, and is BOOTING.

    port   of SSH at the address
    """

    id: str
    state: str
    type: str
    region: str
    address: str = ""
    port: int = SSH_PORT
    price: float | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    def is_of(self, owner: str, node: str | None = None) -> bool:
        """Return whether the machine belongs to a stack's rental, and to a node of it."""
        return self.tags.get(OWNER) == owner and node in (None, self.tags.get(NODE))


@dataclass(frozen=True)
class Order:
    """A machine to rent.

    name        its name for people
    key         the log-in key's name or id in the account, as `add_key` returned it
    user_data   for cloud-init
    image       the image's name; empty for the cloud's default
    options     values of the keys that only this cloud has (`RentedSite.options`)
    """

    name: str
    type: str
    region: str
    tags: Mapping[str, str]
    key: str
    user_data: str
    image: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


class NoCapacityError(Exception):
    """The cloud has no such machine in this region now: the cloud's sentence."""


class QuotaError(Exception):
    """The account may not rent another machine: the cloud's reason."""


class Cloud(Protocol):
    """An account at a cloud. Every method raises ApiError for a call that fails.

    title      the cloud's name for people
    currency   of its prices
    """

    title: str
    currency: str

    def instances(self) -> Sequence[Instance]:
        """Return all machines of the account; those that are GONE may be missing."""

    def offers(self) -> Sequence[Offer]:
        """Return all types in all regions, with prices."""

    def rent(self, order: Order) -> str:
        """Rent one machine and return its id; empty if the cloud accepted the order and names no id.

        Raises NoCapacityError or QuotaError if the cloud refuses.
        """

    def end(self, ids: Sequence[str]) -> None:
        """End the rent of machines; those that are gone already are no error."""

    def add_key(self, name: str, public_key: str) -> str:
        """Have a public key for log-ins in the account, and return its name or id there."""

    def remove_key(self, name: str) -> None:
        """Remove the keys of this name from the account."""
