"""Sites of kind `aws`: instances of EC2, made and removed with the stack.

Nothing here imports pulumi_aws but machines.py and what it calls, and that is imported where a stack has such a site.
"""

from stacks.sites.aws.checks import check
from stacks.sites.aws.model import AwsSite, nodes
from stacks.sites.kind import Kind
from stacks.sites.pools import claims

KIND = Kind(AwsSite, claims, check, nodes, "stacks.sites.aws.machines")
