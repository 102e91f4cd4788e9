"""Keys of an EC2 instance, for pools and the head node."""

from typing import Annotated

from pydantic import Field

from components.settings.section import Help
from components.settings.types import Whole, must
from stacks.sites.aws.images import IMAGE_ID, IMAGES

ImageWord = Annotated[
    str,
    Field(description=f"The image: {', '.join(IMAGES)}, or an id; only new instances get a newer image."),
    must(lambda name: name in IMAGES or IMAGE_ID.fullmatch(name), "is neither an image's short name nor its id"),
    Help(
        f"one of {', '.join(IMAGES)}, or ami-...",
        "write one of them",
        default_text="`deep-learning` for a type with NVIDIA GPUs, else `ubuntu-24.04`",
    ),
]
InstanceType = Annotated[
    str,
    Field(pattern=r"^[a-z][a-z0-9-]{0,15}\.[a-z0-9-]{1,15}$", description="The instance type."),
    Help("an instance type", "write one such as p5.48xlarge or t3.large"),
]
DiskSize = Annotated[Whole, Field(ge=20, le=16384, description="Size of the root disk in GB (gp3, encrypted).")]
