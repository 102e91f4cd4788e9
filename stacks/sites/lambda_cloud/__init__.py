"""Sites of kind `lambda`: machines at Lambda that the stack rents and returns."""

from stacks.sites.kind import Kind
from stacks.sites.lambda_cloud.model import LambdaSite
from stacks.sites.rented.model import nodes

KIND = Kind(LambdaSite, nodes, "stacks.sites.rented.machines", rents=True)
