"""Where machines come from. Each kind of site yields Hosts; from then on they are all the same."""

from typing import Any

from stacks.sites import aws, hosts, lab, local
from stacks.sites.kind import Kind

# By the word that a config has as `kind`. That may be a keyword of Python, such as `lambda`; the package may not.
KINDS: dict[str, Kind[Any, Any]] = {"lab": lab.KIND, "hosts": hosts.KIND, "local": local.KIND, "aws": aws.KIND}
