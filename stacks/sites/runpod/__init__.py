"""Sites of kind `runpod`: pods that the stack rents and returns."""

from stacks.sites.kind import Kind
from stacks.sites.runpod.checks import check
from stacks.sites.runpod.model import RunPodSite, nodes

KIND = Kind(RunPodSite, check, nodes, "stacks.sites.rented.machines", rents=True)
