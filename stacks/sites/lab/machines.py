"""Machines of kind `lab`: systemd containers on this machine, in networks that cannot reach each other.

The containers are resources of the stack; the programs in lab/ create them.
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
    """Return the containers of all lab sites of the stack, in one lab with its own control server.

    cluster_stack   for a pool, the stack whose lab contains them
    """
    subnets = {site.name: None if site.subnet is None else str(site.subnet) for site in sites}
    # The id contains the stack, so that two stacks of one checkout have two labs.
    lab = LabNetworks(lab_id(PROJECT, suffix=cluster_stack or stack), subnets, pool=stack if cluster_stack else "")
    return Machines({node.name: lab.host(node) for node in nodes}, lab.control_url)


class LabNetworks(pulumi.ComponentResource):
    """The lab's networks, its tailnet's control server, and the key for log-ins to its nodes.

    lab       the lab's name, part of every container's name; derived from the checkout
    subnets   site name to network in CIDR form, or None to let Docker choose
    pool      the stack whose networks are added to another stack's lab; empty for the stack's own lab
    """

    def __init__(self, lab: str, subnets: Mapping[str, str | None], pool: str) -> None:
        super().__init__("tailrack:lab:LabNetworks", "lab")
        self.lab = lab
        secret = pulumi.ResourceOptions(parent=self, additional_secret_outputs=["stdout", "stderr"])
        kind, extra = ("pool", {"pool": pool}) if pool else ("network", {})
        self._networks = self._command("lab-networks", "lab networks", kind, {"sites": dict(subnets), **extra}, secret)
        result = self._networks.stdout.apply(parse_result)
        self.private_key: pulumi.Output[str] = pulumi.Output.secret(result["private_key"])
        self.control_url: pulumi.Output[str] = pulumi.Output.unsecret(result["control_url"])
        self.register_outputs({"control_url": self.control_url})

    def host(self, node: LabNode) -> Host:
        """Return one container of the lab as a Host."""
        spec = {"node": node.name, "site": node.site, "bare": node.bare, "like": node.like}
        opts = pulumi.ResourceOptions(parent=self, depends_on=[self._networks])
        container = self._command(f"{node.name}-container", f"{node.name}: container", "node", spec, opts)
        facts = container.stdout.apply(parse_result)
        connection = Connection(
            host=facts["address"],
            port=facts["port"],
            user=facts["user"],
            private_key=self.private_key,
            host_key=facts["host_key"],
        )
        # The container belongs to this stack; traces of another cluster in its image are only for tests.
        return host_of(node, connection, deleted_with=container, take_over=True)

    def _command(
        self, name: str, label: str, kind: str, spec: dict[str, Any], opts: pulumi.ResourceOptions
    ) -> local.Command:
        step = StepLabel(name, "", label)
        # Not sys.executable: the name that python was called by must not change the state.
        command = f"exec {shlex.quote(str(Path(sys.prefix, 'bin', 'python')))} -m lab {kind}"
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
