"""The clouds by the word that configs use."""

from stacks.rental.api import Api
from stacks.rental.cloud import Cloud
from stacks.rental.digitalocean import DigitalOcean
from stacks.rental.lambda_cloud import LambdaCloud
from stacks.rental.runpod import RunPod

CLOUDS: dict[str, type[LambdaCloud | DigitalOcean | RunPod]] = {
    "lambda": LambdaCloud,
    "digitalocean": DigitalOcean,
    "runpod": RunPod,
}


def account(name: str, base_url: str, api_key: str, *, patience: float = 300.0) -> Cloud:
    """Return an account at a cloud. `patience`: seconds after which a call that gets no answer fails."""
    cloud = CLOUDS[name]
    return cloud(Api(base_url or cloud.BASE_URL, api_key, patience=patience))
