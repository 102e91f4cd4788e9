"""The machines that clouds have for a stack at the beginning of a run: those that are lost, and nodes left out.

A preview then shows that a machine has gone, under both engines: pulumi-command's refresh reads nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stacks.http_client import ApiError
from stacks.rental.cloud import GONE, NODE, OWNER, READY, SSH_PORT, STACK, Cloud, Instance, Offer
from stacks.rental.clouds import account
from stacks.sites.rented.model import WARN, RentedNode, RentedSite

PATIENCE_SECONDS = 10.0  # for a cloud's answer before a preview


class AccessDeniedError(Exception):
    """A cloud does not accept an API key."""


@dataclass(frozen=True)
class Rental:
    """All that the machines of one kind need besides their sites.

    lost       by node: the id of the machine that was there at the last run and is gone. It stays after the node has
               another machine, because an input that changes runs the program again
    currency   the stack's; a price in another one is not used
    moved      by node: the address that the machine has had since a run in between. It stays too
    """

    api_key: str
    lost: Mapping[str, str] = field(default_factory=dict)
    currency: str = "USD"
    moved: Mapping[str, str] = field(default_factory=dict)

    def price(self, facts: Mapping[str, Any]) -> str:
        """Return the hourly price of a machine, such as `2.05 USD`; empty if it is unknown."""
        price = facts["price_per_hour"]
        return f"{price:.10g} {self.currency}" if price is not None and facts["currency"] == self.currency else ""


@dataclass(frozen=True)
class Present:
    """The result of the look at all clouds.

    lost       by node, see Rental
    left_out   nodes for which no cloud has a machine, of sites with `fewer: warn`
    messages   warnings
    prices     of a dry run: the places that nodes without a machine would get now, with the clouds' prices
    moved      by node, see Rental
    """

    lost: Mapping[str, str] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    messages: tuple[str, ...] = ()
    prices: tuple[str, ...] = ()
    moved: Mapping[str, str] = field(default_factory=dict)


def look(
    sites: Iterable[RentedSite],
    nodes: Sequence[RentedNode],
    api_keys: Mapping[str, str],
    stack: str,
    last: object,
    account: Callable[..., Cloud] = account,
    *,
    dry_run: bool = True,
) -> Present:
    """Ask the clouds of these sites. Raises AccessDeniedError. A cloud that does not answer has lost no machine.

    Unless it is a dry run, end the rent of machines that a killed run rented for nodes that the config no longer has.

    last   the stack's output `rented` of the last run: facts by node
    """
    recorded = {str(node): facts for node, facts in (last if isinstance(last, dict) else {}).items()}
    lost: dict[str, str] = {}
    moved = {name: place for name in recorded if (place := _id(recorded, name, "moved"))}
    # A stack that was renamed has machines with its old name.
    ours = {_id(recorded, name, "id") for name in recorded}
    left_out, messages, prices = set[str](), list[str](), list[str]()
    for site in sites:
        mine = [node for node in nodes if node.site == site.name]
        cloud = account(site.kind, site.base_url, api_keys[site.kind], patience=PATIENCE_SECONDS)
        try:
            present = [machine for machine in cloud.instances() if machine.state != GONE]
            orphans = _orphans(present, recorded, nodes)
            if orphans and not dry_run:
                cloud.end([orphan.id for orphan in orphans])
            tagged = {one.tags.get(NODE) for one in present if one.tags.get(STACK) == stack or one.id in ours}
            waiting = [node for node in mine if node.name not in tagged]
            offers = _usable(cloud.offers(), site) if waiting and (site.fewer == WARN or dry_run) else []
            available = {(offer.type, offer.region) for offer in offers}
        except ApiError as error:
            if error.denied:
                raise denied(site, cloud, error) from None
            messages.append(f"site {site.name}: {cloud.title} does not say which machines it has: {error}")
            lost |= {node.name: id_ for node in mine if (id_ := _id(recorded, node.name, "lost"))}
            continue
        messages += [
            f"{orphan.tags[NODE]}: its machine {orphan.id} at {cloud.title} was rented by a run that was killed, and "
            "no node of the config needs it; `up` ends its rent"
            for orphan in orphans
        ]
        ids = {machine.id: machine for machine in present}
        for node in mine:
            name, old = node.name, _id(recorded, node.name, "id")
            if old and old not in ids:
                lost[name] = old
                messages.append(f"{name}: its machine {old} is no longer at {cloud.title}; `up` rents another")
            elif earlier := _id(recorded, name, "lost"):
                lost[name] = earlier
            if place := new_address(recorded.get(name), ids):
                moved[name] = place
                messages.append(f"{name}: its machine {old} has another address now, {place}; `up` uses it")
            if site.fewer == WARN and name not in tagged and available.isdisjoint(node.offers):
                left_out.add(name)
                tried = ", ".join(f"{kind} in {region}" for kind, region in node.offers)
                messages.append(f"{name} is left out: {cloud.title} has no capacity now ({tried})")
        if dry_run:
            prices += _prices(site, [node for node in waiting if node.name not in left_out], offers, cloud)
    return Present(lost, frozenset(left_out), tuple(messages), tuple(prices), moved)


def _usable(offers: Iterable[Offer], site: RentedSite) -> list[Offer]:
    return [offer for offer in offers if offer.available and not offer.too_dear(site.max_price_per_hour)]


def _prices(site: RentedSite, nodes: Iterable[RentedNode], offers: Iterable[Offer], cloud: Cloud) -> Iterator[str]:
    """Give a sentence for each place that nodes would get now."""
    present = {(offer.type, offer.region): offer for offer in offers}
    firsts = {node.name: next((place for place in node.offers if place in present), None) for node in nodes}
    for place in dict.fromkeys(firsts.values()):
        names = ", ".join(node for node, first in firsts.items() if first == place)
        if place is None:
            limit = " for at most max_price_per_hour" if site.max_price_per_hour else ""
            yield f"site {site.name}: {cloud.title} has no capacity{limit} now for {names}"
        else:
            price = present[place].price
            cost = "an unknown price" if price is None else f"{price:.10g} {cloud.currency} an hour each"
            yield f"site {site.name}: {cloud.title} has {present[place]} now for {names}: {cost}"


def denied(site: RentedSite, cloud: Cloud, error: ApiError) -> AccessDeniedError:
    """Return the error of a cloud that does not accept the API key."""
    return AccessDeniedError(
        f"site {site.name}: {cloud.title} does not accept the API key: {error}; nothing was changed; run: "
        f"pulumi config set --path --secret tailrack:api_keys.{site.kind}"
    )


def _orphans(present: Iterable[Instance], recorded: Mapping[str, Any], nodes: Iterable[RentedNode]) -> list[Instance]:
    """Return machines with an owner of the stack, for a node that neither the config nor the last run has."""
    owners = {_id(recorded, node, "owner") for node in recorded} - {""}
    names = {*recorded, *(node.name for node in nodes)}
    return [machine for machine in present if machine.tags.get(OWNER) in owners and machine.tags.get(NODE) not in names]


def _id(recorded: Mapping[str, Any], node: str, key: str) -> str:
    facts = recorded.get(node)
    value = facts.get(key) if isinstance(facts, dict) else None
    return value if isinstance(value, str) else ""


def new_address(facts: object, machines: Mapping[str, Instance]) -> str:
    """Return the address and port of a node's machine, if they are not those of the last run; else empty."""
    facts = facts if isinstance(facts, dict) else {}
    machine = machines.get(str(facts.get("id")))
    if machine is None or machine.state != READY or not machine.address or not facts.get("address"):
        return ""
    place = machine.address, machine.port
    return "" if place == (facts["address"], facts.get("port", SSH_PORT)) else "{}:{}".format(*place)
