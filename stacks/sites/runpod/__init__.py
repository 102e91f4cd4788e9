"""Sites of kind `runpod`: pods that the stack rents and returns."""

from stacks.sites.kind import Kind
from stacks.sites.runpod.model import RunPodSite, nodes

KIND = Kind(RunPodSite, nodes, "stacks.sites.rented.machines", rents=True)
