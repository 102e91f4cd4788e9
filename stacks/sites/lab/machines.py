"""Machines of kind `lab`: systemd containers on this machine, in networks that cannot reach each other.

The containers are resources of the stack like everything else, made by the programs in lab/.
"""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pulumi
from pulumi_command import local

from components.host import Connection, Host
from components.steps.label import StepLabel
from components.steps.step import parse_result
from lab.identity import lab_id
from stacks import PROJECT
from stacks.sites.lab.model import LabNode, LabSite
from stacks.sites.machines import Machines, host_of

STATE_DIR = PROJECT / ".tailrack" / "lab"


def machines(sites: Sequence[LabSite], nodes: Sequence[LabNode], stack: str, cluster_stack: str = "") -> Machines:
    """The containers of all lab sites of the stack, in one lab with a control server of its own.

    cluster_stack   of a pool, the stack in whose lab they are
    """
    subnets = {site.name: None if site.subnet is None else str(site.subnet) for site in sites}
    # The stack is part of the name, so that two stacks of one checkout are two labs.
    lab = LabNetworks(lab_id(PROJECT, suffix=cluster_stack or stack), subnets, pool=stack if cluster_stack else "")
    return Machines({node.name: lab.host(node) for node in nodes}, lab.control_url)


class LabNetworks(pulumi.ComponentResource):
    """The lab's networks, the control server of its tailnet, and the key that opens its nodes.

    lab       the lab's name, part of every container's name; derived from the checkout
    subnets   site name to network in CIDR form, or None to have one chosen
    pool      the stack whose networks are added to the lab of another one; empty for a lab of its own
    """

    def __init__(
        self,
        lab: str,
        subnets: Mapping[str, str | None],
        pool: str = "",
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("tailrack:lab:LabNetworks", "lab", None, opts)
        self.lab = lab
        secret = pulumi.ResourceOptions(parent=self, additional_secret_outputs=["stdout", "stderr"])
        what, whose = ("pool", {"pool": pool}) if pool else ("network", {})
        self._made = self._command("lab-networks", "lab networks", what, {"sites": dict(subnets), **whose}, secret)
        result = self._made.stdout.apply(parse_result)
        self.private_key: pulumi.Output[str] = pulumi.Output.secret(result["private_key"])
        self.control_url: pulumi.Output[str] = pulumi.Output.unsecret(result["control_url"])
        self.register_outputs({"control_url": self.control_url})

    def host(self, node: LabNode) -> Host:
        """Return one container of the lab as a Host."""
        spec = {"node": node.name, "site": node.site, "bare": node.bare, "like": node.like}
        after = pulumi.ResourceOptions(parent=self, depends_on=[self._made])
        container = self._command(f"{node.name}-container", f"{node.name}: container", "node", spec, after)
        made = container.stdout.apply(parse_result)
        connection = Connection(
            host=made["address"],
            port=made["port"],
            user=made["user"],
            private_key=self.private_key,
            host_key=made["host_key"],
        )
        # It was made for this stack; what it has of another cluster is there for show.
        return host_of(node, connection, deleted_with=container, take_over=True)

    def _command(
        self, name: str, label: str, what: str, spec: dict[str, Any], opts: pulumi.ResourceOptions
    ) -> local.Command:
        step = StepLabel(name, "", label)
        # Not sys.executable: by which of its names python was called must make no difference to the state.
        command = f"exec {shlex.quote(str(Path(sys.prefix, 'bin', 'python')))} -m lab {what}"
        return local.Command(
            name,
            create=step.on(f"{command} up"),
            delete=step.on(f"{command} down"),
            dir=str(PROJECT),
            stdin=json.dumps({"lab": self.lab, "state_dir": str(STATE_DIR), **spec}, sort_keys=True),
            logging=local.Logging.NONE,
            add_previous_output_in_env=False,
            opts=opts,
        )
