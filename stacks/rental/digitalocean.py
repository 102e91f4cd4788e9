"""DigitalOcean's API (api.digitalocean.com/v2; github.com/digitalocean/openapi)."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from stacks.http_client import ApiError
from stacks.rental.answers import amount, items, listed, machines, mappings, text
from stacks.rental.api import Api
from stacks.rental.cloud import BOOTING, READY, TAGS, Instance, NoCapacityError, Offer, Order, QuotaError

# A droplet that is off costs money too; one that is destroyed is not listed.
_STATES = {"active": READY}
# The API has no codes for these refusals, only a message with status 422.
_QUOTA = re.compile(r"droplet limit", re.I)
_NO_CAPACITY = re.compile(r"^(?!.*\bimage\b).*(unavailable|not available|capacity)", re.I)
_DOT = "_dot_"  # tags have no dots
_MOST_PAGES = 100


class DigitalOcean:
    """An account at DigitalOcean."""

    title, currency = "DigitalOcean", "USD"
    BASE_URL = "https://api.digitalocean.com/v2"

    def __init__(self, api: Api) -> None:
        self._api = api

    def instances(self) -> list[Instance]:
        """Return the droplets of the account."""
        return [_instance(item) for item in machines({"droplets": [*self._all("/droplets", "droplets")]}, "droplets")]

    def offers(self) -> list[Offer]:
        """Return sizes with prices, in the regions that have them."""
        found = []
        for size in self._all("/sizes", "sizes"):
            regions = [str(region) for region in items(size, "regions")] if size.get("available") is True else []
            kind, cost = text(size, "slug"), amount(size, "price_hourly")
            found += [Offer(kind, region, cost) for region in regions] or [Offer(kind, "", cost, available=False)]
        return found

    def rent(self, order: Order) -> str:
        """Create a droplet."""
        body = {
            "name": order.name,
            "region": order.region,
            "size": order.type,
            "image": order.image,
            "ssh_keys": [int(order.key)],
            "user_data": order.user_data,
            "tags": [_tag(key, value) for key, value in order.tags.items()],
        }
        try:
            return text(self._api.once("POST", "/droplets", body), "droplet", "id")
        except ApiError as error:
            if error.status == 422 and _QUOTA.search(str(error)):
                raise QuotaError(str(error)) from None
            if error.status == 422 and _NO_CAPACITY.search(str(error)):
                raise NoCapacityError(str(error)) from None
            raise

    def end(self, ids: Sequence[str]) -> None:
        """Destroy droplets."""
        for droplet in ids:
            self._api.delete(f"/droplets/{droplet}")

    def add_key(self, name: str, public_key: str) -> str:
        """Return the id of the account's key with this content, added if it is not there."""
        if found := self._key(public_key):
            return found
        try:
            return text(
                self._api.repeat("POST", "/account/keys", {"name": name, "public_key": public_key}), "ssh_key", "id"
            )
        except ApiError as error:
            # A call that got no answer added it.
            if error.status == 422 and (found := self._key(public_key)):
                return found
            raise

    def remove_key(self, name: str) -> None:
        """Remove the keys of this name."""
        for key in self._all("/account/keys", "ssh_keys"):
            if text(key, "name") == name:
                self._api.delete(f"/account/keys/{text(key, 'id')}")

    def _key(self, public_key: str) -> str:
        keys = self._all("/account/keys", "ssh_keys")
        same = (key for key in keys if text(key, "public_key").split()[:2] == public_key.split()[:2])
        return next((text(key, "id") for key in same), "")

    def _all(self, path: str, name: str) -> Iterator[dict[str, Any]]:
        """Give the items of all pages."""
        for page in range(1, _MOST_PAGES + 1):
            answer = self._api.get(f"{path}?per_page=200&page={page}")
            yield from listed(answer, name)
            if not text(answer, "links", "pages", "next"):
                return


def _tag(key: str, value: str) -> str:
    return re.sub(r"[^A-Za-z0-9:_-]", "_", f"{key}:{value}".replace(".", _DOT))


def _instance(item: dict[str, Any]) -> Instance:
    public = (each for each in mappings(item, "networks", "v4") if text(each, "type") == "public")
    tags = [str(tag).replace(_DOT, ".") for tag in items(item, "tags")]
    return Instance(
        id=text(item, "id"),
        state=_STATES.get(text(item, "status"), BOOTING),
        type=text(item, "size_slug"),
        region=text(item, "region", "slug"),
        address=next((text(each, "ip_address") for each in public), ""),
        price=amount(item, "size", "price_hourly"),
        tags={key: tag[len(key) + 1 :] for key in TAGS for tag in tags if tag.startswith(f"{key}:")},
    )
