"""Settings of a site at RunPod."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from components.settings.cluster import Head
from components.settings.section import key
from components.settings.types import Whole
from stacks.sites.hosts.ssh_types import Login
from stacks.sites.pods import PodRisk, Stage
from stacks.sites.rented import model
from stacks.sites.rented.model import IMAGE_HELP, RentedNode, RentedSite

# RunPod's image for GPUs, with an SSH server and /start.sh.
IMAGE = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"
ContainerImage = Annotated[str, Field(pattern=r"^[a-z0-9][A-Za-z0-9._/:@-]{0,254}$"), IMAGE_HELP]


class RunPodSite(RentedSite):
    """A site of pods."""

    kind: Literal["runpod"]
    """Pods at RunPod, rented and returned with the stack."""
    image: ContainerImage = IMAGE
    """The container image; it needs an SSH server that its /start.sh starts."""
    user: Login = "root"
    """The image's account for log-ins: root, or one with password-less sudo."""
    disk_gb: Whole = key(ge=10, le=2000, default=50)
    """Size of a pod's container disk in GB; a pod that stops loses its contents."""
    volume_gb: Whole = key(ge=10, le=10000, default=100)
    """Size of a pod's volume /workspace in GB, which lasts until the pod ends."""
    accept_pod_risk: PodRisk = False
    stage: Stage = False

    @property
    def options(self) -> dict[str, Any]:
        """Return the sizes of the disks."""
        return {"disk_gb": self.disk_gb, "volume_gb": self.volume_gb}


def nodes(site: RunPodSite, head: Head) -> list[RentedNode]:
    """Return the nodes of the site, which are pods."""
    return [replace(node, pod=True, in_all=False, stage=site.stage) for node in model.nodes(site, head)]
