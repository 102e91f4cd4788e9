"""Keys of an EC2 instance, for pools and the head node."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from components.settings.section import key
from components.settings.types import refuse
from stacks.sites.aws.images import IMAGE_ID, IMAGES, image_for


def _image(value: str) -> str:
    if value not in IMAGES and not IMAGE_ID.fullmatch(value):
        refuse("is neither an image's short name nor its id")
    return value


ImageWord = Annotated[str, AfterValidator(_image)]
InstanceType = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,15}\.[a-z0-9-]{1,15}$")]


def type_key(**field: Any) -> Any:
    """Return the key of the instance type."""
    return key(
        "the instance type",
        wants="an instance type",
        breaks="EC2 could not start the instance",
        fix="write one such as p5.48xlarge or t3.large",
        **field,
    )


def image_key() -> Any:
    """Return the key of the image."""
    names = ", ".join(IMAGES)
    return key(
        f"the image: {names}, or an id; only new instances get a newer image",
        wants=f"one of {names}, or ami-...",
        breaks="EC2 could not start the instance",
        fix="write one of them",
        default_text="`deep-learning` for a type with NVIDIA GPUs, else `ubuntu-24.04`",
        default_factory=lambda shape: image_for(shape["type"]),
    )


def user_key() -> Any:
    """Return the key of the account to log in with."""
    return key(
        "the image's account for log-ins; default: the account of the named image, or ubuntu for an id",
        wants="an account's name",
        breaks="tailrack could not log in",
        fix="write the account that the image provides",
        default=None,
    )


def disk_key() -> Any:
    """Return the key of the root disk's size."""
    return key(
        "size of the root disk in GB (gp3, encrypted)",
        wants="a size in GB from 20 to 16384",
        breaks="the packages and containers would not fit",
        fix="write 100 or more",
        ge=20,
        le=16384,
        default=100,
    )
