"""Lambda's API (cloud.lambda.ai/api/v1; docs-api.lambda.ai, OpenAPI 1.8.3)."""

from collections.abc import Sequence
from typing import Any

from stacks.http_client import ApiError
from stacks.rental.answers import amount, items, listed, machines, mappings, text
from stacks.rental.api import Api
from stacks.rental.cloud import BOOTING, GONE, READY, Instance, NoCapacityError, Offer, Order, QuotaError

_STATES = {"active": READY, "unhealthy": READY, "terminating": GONE, "terminated": GONE, "preempted": GONE}
_NO_CAPACITY, _QUOTA = "instance-operations/launch/insufficient-capacity", "global/quota-exceeded"
_UNKNOWN, _DUPLICATE = "global/object-does-not-exist", "global/duplicate"


class LambdaCloud:
    """An account at Lambda."""

    title, currency = "Lambda", "USD"
    BASE_URL = "https://cloud.lambda.ai/api/v1"

    def __init__(self, api: Api) -> None:
        self._api = api

    def instances(self) -> list[Instance]:
        """Return the machines of the account."""
        return [_instance(item) for item in machines(self._api.get("/instances"), "data")]

    def offers(self) -> list[Offer]:
        """Return types with prices, available where the answer says so. It names no other regions."""
        types = self._api.get("/instance-types").get("data")
        if not isinstance(types, dict):
            raise ApiError("an answer of the cloud has no types of machines")
        found = []
        for name, item in types.items():
            price = _price(item)
            regions = [text(region, "name") for region in mappings(item, "regions_with_capacity_available")]
            found += [Offer(name, region, price) for region in regions] or [Offer(name, "", price, available=False)]
        return found

    def rent(self, order: Order) -> str:
        """Rent one machine."""
        body: dict[str, Any] = {
            "region_name": order.region,
            "instance_type_name": order.type,
            "ssh_key_names": [order.key],
            "name": order.name,
            "tags": [{"key": key, "value": value} for key, value in order.tags.items()],
            "user_data": order.user_data,
        }
        if order.image:
            body["image"] = {"family": order.image}
        try:
            answer = self._api.once("POST", "/instance-operations/launch", body)
        except ApiError as error:
            if error.code == _NO_CAPACITY:
                raise NoCapacityError(str(error)) from None
            if error.code == _QUOTA:
                raise QuotaError(str(error)) from None
            raise
        return next(map(text, items(answer, "data", "instance_ids")), "")

    def end(self, ids: Sequence[str]) -> None:
        """Terminate machines. One by one: an unknown id rejects the whole call."""
        for instance in ids:
            try:
                self._api.repeat("POST", "/instance-operations/terminate", {"instance_ids": [instance]})
            except ApiError as error:
                if error.code != _UNKNOWN:
                    raise

    def add_key(self, name: str, public_key: str) -> str:
        """Return the name of the account's key with this content, added if it is not there."""
        for key in self._keys():
            if text(key, "public_key").split()[:2] == public_key.split()[:2]:
                return text(key, "name")
        try:
            self._api.repeat("POST", "/ssh-keys", {"name": name, "public_key": public_key})
        except ApiError as error:
            if error.code != _DUPLICATE:  # a call that got no answer added it
                raise
        return name

    def remove_key(self, name: str) -> None:
        """Remove the keys of this name."""
        for key in self._keys():
            if text(key, "name") == name:
                self._api.repeat("DELETE", f"/ssh-keys/{text(key, 'id')}")

    def _keys(self) -> list[dict[str, Any]]:
        return listed(self._api.get("/ssh-keys"), "data")


def _price(item: Any) -> float | None:
    cents = amount(item, "instance_type", "price_cents_per_hour")
    return None if cents is None else cents / 100


def _instance(item: dict[str, Any]) -> Instance:
    return Instance(
        id=text(item, "id"),
        state=_STATES.get(text(item, "status"), BOOTING),
        type=text(item, "instance_type", "name"),
        region=text(item, "region", "name"),
        address=text(item, "ip"),
        price=_price(item),
        tags={text(tag, "key"): text(tag, "value") for tag in mappings(item, "tags")},
    )
