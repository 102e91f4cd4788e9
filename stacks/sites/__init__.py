"""Sources of machines. Each kind of site creates Hosts, which the rest of the program treats alike."""

from typing import Annotated, Any

from pydantic import Field

from stacks.sites import aws, digitalocean, hosts, lab, lambda_cloud, local, runpod
from stacks.sites.aws.model import AwsSite
from stacks.sites.hosts.model import HostsSite
from stacks.sites.kind import Kind, NodeSpec, Site
from stacks.sites.lab.model import LabSite
from stacks.sites.local.model import LocalSite
from stacks.sites.runpod.model import RunPodSite

# By `kind` in the config, which may be a Python keyword such as `lambda`; the package may not.
# Each kind has its own types of site and node; the readers of this table do not need them.
_KINDS: dict[str, Any] = {
    "lab": lab.KIND,
    "hosts": hosts.KIND,
    "local": local.KIND,
    "aws": aws.KIND,
    "lambda": lambda_cloud.KIND,
    "digitalocean": digitalocean.KIND,
    "runpod": runpod.KIND,
}
KINDS: dict[str, Kind[Site, NodeSpec]] = _KINDS
AnySite = Annotated[
    LabSite | HostsSite | LocalSite | AwsSite | lambda_cloud.LambdaSite | digitalocean.DigitalOceanSite | RunPodSite,
    Field(discriminator="kind"),
]
