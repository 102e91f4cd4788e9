"""Sites of kind `aws`: EC2 instances that the stack creates and deletes.

Only machines.py and the modules it imports need pulumi_aws; a stack imports them only if it has such a site.
"""

from stacks.sites.aws.model import AwsSite, nodes
from stacks.sites.kind import Kind

KIND = Kind(AwsSite, nodes, "stacks.sites.aws.machines")
