"""The clouds by the word that configs use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from stacks.rental import digitalocean, lambda_cloud, runpod
from stacks.rental.api import Api
from stacks.rental.cloud import Cloud


class Entry(NamedTuple):
    """A cloud: the class of its account, and the address of its API."""

    account: Callable[[Api], Cloud]
    base_url: str


CLOUDS: Mapping[str, Entry] = {
    "lambda": Entry(lambda_cloud.LambdaCloud, lambda_cloud.BASE_URL),
    "digitalocean": Entry(digitalocean.DigitalOcean, digitalocean.BASE_URL),
    "runpod": Entry(runpod.RunPod, runpod.BASE_URL),
}


def account(name: str, base_url: str, api_key: str, *, patience: float = 300.0) -> Cloud:
    """Return an account at a cloud. `patience`: seconds after which a call that gets no answer fails."""
    return CLOUDS[name].account(Api(base_url or CLOUDS[name].base_url, api_key, patience=patience))
