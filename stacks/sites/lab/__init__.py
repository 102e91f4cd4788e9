"""Sites of kind `lab`: systemd containers on this machine, in networks that cannot reach each other."""

from stacks.sites.kind import Kind
from stacks.sites.lab.model import LabSite, nodes

KIND = Kind(LabSite, nodes, "stacks.sites.lab.machines", uses_lab=True, brings_tailnet=True)
