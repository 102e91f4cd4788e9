"""Settings of a site at RunPod."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from components.settings.cluster import Head
from components.settings.section import number
from components.settings.types import Whole
from stacks.sites.hosts.ssh_types import Login
from stacks.sites.kind import kind_key
from stacks.sites.pods import risk_key, stage_key
from stacks.sites.rented import model
from stacks.sites.rented.model import RentedNode, RentedSite, image_key, user_key

# RunPod's image for GPUs, with an SSH server and /start.sh.
IMAGE = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"
ContainerImage = Annotated[str, Field(pattern=r"^[a-z0-9][A-Za-z0-9._/:@-]{0,254}$")]


class RunPodSite(RentedSite):
    """A site of pods."""

    kind: Literal["runpod"] = kind_key("runpod", "pods at RunPod, rented and returned with the stack")
    image: ContainerImage = image_key("the container image; it needs an SSH server that its /start.sh starts", IMAGE)
    user: Login = user_key("root")
    disk_gb: Whole = number(
        "size of a pod's container disk in GB; a pod that stops loses its contents",
        10,
        2000,
        breaks="the image and the packages would not fit",
        default=50,
    )
    volume_gb: Whole = number(
        "size of a pod's volume /workspace in GB, which lasts until the pod ends",
        10,
        10000,
        breaks="RunPod would refuse the volume",
        default=100,
    )
    accept_pod_risk: bool = risk_key("; required")
    stage: bool = stage_key()

    @property
    def options(self) -> dict[str, Any]:
        """Return the sizes of the disks."""
        return {"disk_gb": self.disk_gb, "volume_gb": self.volume_gb}


def nodes(site: RunPodSite, head: Head) -> list[RentedNode]:
    """Return the nodes of the site, which are pods."""
    return [replace(node, pod=True, in_all=False, stage=site.stage) for node in model.nodes(site, head)]
