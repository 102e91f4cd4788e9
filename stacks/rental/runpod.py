"""RunPod's API (api.runpod.io/v2; runpod/docs, api-reference-v2/openapi.json). A machine is a pod: a container.

A type is a GPU's id with `_` for each space, after `2x_`, `4x_` or `8x_` for several GPUs. A region is a data center of
Secure Cloud in lowercase, or `community`: any place in Community Cloud.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from stacks.http_client import ApiError
from stacks.rental.answers import amount, listed, machines, mappings, text, value
from stacks.rental.api import Api
from stacks.rental.cloud import BOOTING, GONE, READY, Instance, NoCapacityError, Offer, Order, QuotaError

COMMUNITY = "community"
# The availability of each number of GPUs costs one call; RunPod allows 60 calls a minute.
COUNTS = (1, 2, 4, 8)
# Names of environment variables. In lowercase, because /start.sh writes those in capitals where every account reads.
TAGS, HOST_KEY = "tailrack_tags", "tailrack_host_key"
_REGION = "tailrack:region"  # a tag, because a pod has no data center before it is placed
# RunPod's images start sshd in /start.sh, which keeps a host key that exists. A pod that starts again finds its own key
# on its volume (stacks/sites/rented/pod_host_key.py).
START = (
    f"bash -c 'echo ${HOST_KEY} | base64 -d | install -m 600 /dev/stdin /etc/ssh/ssh_host_ecdsa_key; unset {HOST_KEY}; "
    "chown root:root /workspace; chmod go-w /workspace; cp /workspace/.tailrack/ssh_host_ed25519_key* /etc/ssh/; "
    "[ -x /workspace/.tailrack/boot ] && /workspace/.tailrack/boot & exec /start.sh'"
)
# A pod that has stopped or failed costs money too.
_STATES = {"RUNNING": READY, "TERMINATED": GONE}
# These refusals have no code. RunPod's own tests match these sentences (runpod/containers, tests/runpod_smoke/pod.py).
_NO_CAPACITY = re.compile(r"instances (currently )?available|does not have the resources|capacity", re.I)


class RunPod:
    """An account at RunPod."""

    title, currency = "RunPod", "USD"
    BASE_URL = "https://api.runpod.io/v2"

    def __init__(self, api: Api) -> None:
        self._api = api

    def instances(self) -> list[Instance]:
        """Return the pods of the account, without those of its Instant Clusters."""
        return [_instance(pod) for pod in machines(self._api.get("/pods"), "pods")]

    def offers(self) -> list[Offer]:
        """Return types with prices in data centers. Only the call that rents says what Community Cloud has."""
        query = "/catalog/gpus?include=AVAILABILITY&product=POD&cloud=SECURE&count="
        return [
            offer
            for count in COUNTS
            for gpu in listed(self._api.get(f"{query}{count}"), "gpus")
            for offer in _offers(gpu, count)
        ]

    def rent(self, order: Order) -> str:
        """Create a pod."""
        count, gpu = _gpus(order.type)
        body: dict[str, Any] = {
            "name": order.name,
            "image": order.image,
            "gpu": {"id": gpu, "count": count},
            "cloud": "SECURE",
            "args": START,
            "ports": ["22/tcp"],
            "disk": order.options["disk_gb"],
            "mounts": {"persistent": {"size": order.options["volume_gb"], "path": "/workspace"}},
            "env": {
                "PUBLIC_KEY": order.key,
                HOST_KEY: _host_key(order.user_data),
                TAGS: urlencode({**order.tags, _REGION: order.region}),
            },
        }
        if order.region == COMMUNITY:
            body["cloud"] = "COMMUNITY"
        else:
            body["dataCenterIds"] = [order.region.upper()]
        try:
            return text(self._api.once("POST", "/pods", body), "id")
        except ApiError as error:
            # v1 answered 500 for no capacity; v2 answers 400.
            if error.status in (400, 500) and _NO_CAPACITY.search(str(error)):
                raise NoCapacityError(str(error)) from None
            # A limit of the account, or another sentence for no capacity.
            if error.status == 400:
                raise QuotaError(str(error)) from None
            raise

    def end(self, ids: Sequence[str]) -> None:
        """Terminate pods, with their volumes."""
        for pod in ids:
            self._api.delete(f"/pods/{quote(pod, safe='')}")

    def add_key(self, _name: str, public_key: str) -> str:
        """Return the key: each pod gets it in its environment, and the account's keys stay as they are."""
        return public_key

    def remove_key(self, _name: str) -> None:
        """Do nothing: the account has no key."""


def _type(gpu: str, count: int) -> str:
    return ("" if count < 2 else f"{count}x_") + gpu.replace(" ", "_")


def _gpus(kind: str) -> tuple[int, str]:
    """Return the number and the id of the GPUs of a type."""
    match = re.fullmatch(r"(?:(\d+)x_)?(.+)", kind)
    count, name = match.groups() if match else (None, kind)
    return int(count or 1), name.replace("_", " ")


def _offers(gpu: Mapping[str, Any], count: int) -> Iterator[Offer]:
    kind = _type(text(gpu, "id"), count)
    if _most(gpu, "secure") >= count:
        # Without a data center that has one now, the type still exists.
        yield Offer(kind, "", available=False)
        for center in mappings(gpu, "dataCenters"):
            free = text(center, "availability") != "NONE"
            yield Offer(kind, text(center, "id").lower(), _price(gpu, "secure", count), free)
    if _most(gpu, COMMUNITY) >= count:
        yield Offer(kind, COMMUNITY, _price(gpu, COMMUNITY, count))


def _most(gpu: Mapping[str, Any], cloud: str) -> int:
    count = value(gpu, "maxCount", cloud) if gpu.get(cloud) is True else 0
    return count if isinstance(count, int) else 0


def _price(gpu: Mapping[str, Any], cloud: str, count: int) -> float | None:
    price = amount(gpu, "price", cloud)
    return None if price is None else round(price * count, 4)


def _host_key(user_data: str) -> str:
    """Return the host key of cloud-init's user data in base64; a pod has no cloud-init."""
    keys = json.loads(user_data.removeprefix("#cloud-config\n")).get("ssh_keys", {})
    return base64.b64encode(keys.get("ecdsa_private", "").encode()).decode()


def _whole(word: str) -> int:
    return int(word) if word.isdecimal() and len(word) < 6 else 0


def _instance(pod: dict[str, Any]) -> Instance:
    tags = dict(parse_qsl(text(pod, "env", TAGS)))
    port = _whole(text(pod, "ssh", "direct", "port"))
    return Instance(
        id=text(pod, "id"),
        state=_STATES.get(text(pod, "status"), BOOTING),
        type=_type(text(pod, "gpu", "id"), _whole(text(pod, "gpu", "count"))),
        region=tags.get(_REGION, ""),
        address=text(pod, "ssh", "direct", "host") if port else "",
        port=port,
        price=amount(pod, "cost"),
        tags=tags,
    )
