"""The prices of clouds for nodes without a price in the config."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from stacks.http_client import ApiError
from stacks.rental.cloud import Cloud, Offer
from stacks.rental.clouds import account
from stacks.sites.rented.model import RentedNode, RentedSite
from stacks.sites.rented.present import PATIENCE_SECONDS, denied


class NoPricesError(Exception):
    """A cloud does not answer, and no earlier run knows its prices."""


def cloud_prices(
    sites: Iterable[RentedSite],
    nodes: Sequence[RentedNode],
    api_keys: Mapping[str, str],
    currency: str,
    last: Mapping[str, float],
    account: Callable[..., Cloud] = account,
) -> dict[str, float]:
    """Return the hourly price of each node that the config gives none: that of the dearest type in its `try`.

    A node is missing if its cloud has no price in this currency. If a cloud does not answer, its nodes keep their last
    prices. Raises NoPricesError if they have none, and AccessDeniedError.
    """
    prices: dict[str, float] = {}
    for site in sites:
        unpriced = [node for node in nodes if node.site == site.name and node.price_per_hour is None]
        if not unpriced:
            continue
        cloud = account(site.kind, site.base_url, api_keys[site.kind], patience=PATIENCE_SECONDS)
        try:
            offers = cloud.offers() if cloud.currency == currency else []
        except ApiError as error:
            if error.denied:
                raise denied(site, cloud, error) from None
            if any(node.name not in last for node in unpriced):
                raise NoPricesError(f"site {site.name}: {cloud.title} does not say its prices: {error}") from None
            prices |= {node.name: last[node.name] for node in unpriced}
            continue
        for node in unpriced:
            costs = [_price(offers, type_, region) for type_, region in node.offers]
            if priced := [cost for cost in costs if cost is not None]:
                prices[node.name] = max(priced)
    return prices


def _price(offers: Iterable[Offer], type_: str, region: str) -> float | None:
    """Return the price of a type in a region; of a region without capacity, the type's highest price."""
    priced = {offer.region: offer.price for offer in offers if offer.type == type_ and offer.price is not None}
    return priced.get(region, max(priced.values(), default=None))
