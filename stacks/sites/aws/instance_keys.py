"""Keys that describe an EC2 instance: those of pools and of the head node."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from components.settings.section import key
from components.settings.types import refuse
from stacks.sites.aws.images import IMAGE_ID, IMAGES, image_for


def _image(value: str) -> str:
    if value not in IMAGES and not IMAGE_ID.fullmatch(value):
        refuse("is neither the word of an image nor an image's id")
    return value


ImageWord = Annotated[str, AfterValidator(_image)]
InstanceType = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,15}\.[a-z0-9-]{1,15}$")]


def type_key(**field: Any) -> Any:
    """Return the key of the instance type."""
    return key(
        "the instance type",
        wants="an instance type",
        breaks="EC2 would not know what to start",
        fix="write one such as p5.48xlarge or t3.large",
        **field,
    )


def image_key() -> Any:
    """Return the key of the image."""
    known = ", ".join(IMAGES)
    return key(
        f"the image: {known}, or an id; a newer one is only taken by new instances",
        wants=f"one of {known}, or ami-...",
        breaks="EC2 would not know what to start",
        fix="write one of them",
        otherwise="`deep-learning` for a type with NVIDIA GPUs, else `ubuntu-24.04`",
        default_factory=lambda shape: image_for(shape["type"]),
    )


def user_key() -> Any:
    """Return the key of the account to log in with."""
    return key(
        "the account that the image opens; left out, the word's own, and ubuntu for an id",
        wants="an account's name",
        breaks="the program could not log in",
        fix="write the one that the image opens",
        default=None,
    )


def disk_key() -> Any:
    """Return the key of the size of the root disk."""
    return key(
        "the root disk, GB (gp3, encrypted)",
        wants="a size in GB from 20 to 16384",
        breaks="the packages and containers would not fit",
        fix="write 100 or more",
        ge=20,
        le=16384,
        default=100,
    )
