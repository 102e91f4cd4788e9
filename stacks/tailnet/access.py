"""The way into a stack's tailnet, whatever kind it is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import pulumi

from components.cluster.tailnet_access import TailnetAccess
from components.host import Host
from components.roles.role import Role
from components.roles.tailnet.policy import ports
from components.roles.tailnet.settings import EXISTING, TAILSCALE, PoolTailnet, Tailnet
from stacks.sites import KINDS
from stacks.sites.kind import Site

_MISSING = (
    "tailrack:tailnet.kind is tailscale, and the package pulumi-tailscale is not installed; run `make setup STACK="
    "{stack}`, or: .venv/bin/python -m pip install --require-hashes -r requirements-tailscale.txt"
)


@dataclass(frozen=True)
class StackTailnet:
    """The tailnet as the stack has it.

    policy    what its policy file has to hold; None where somebody else's API keeps it
    existing  every machine is a member already, and stays one
    """

    access: TailnetAccess
    policy: Mapping[str, Any] | None = None
    existing: bool = False

    def hosts(self, hosts: Mapping[str, Host]) -> Mapping[str, Host]:
        """The hosts as they are in this tailnet."""
        return {name: replace(host, adopt=True) for name, host in hosts.items()} if self.existing else hosts


def stack_tailnet(
    settings: Tailnet | PoolTailnet,
    roles: Sequence[Role],
    sites: Sequence[Site],
    control_url: pulumi.Input[str] | None,
    *,
    stack: str,
    name: str,
    tag: pulumi.Input[str] = "",
    ephemeral: bool = False,
) -> StackTailnet:
    """Make what the stack's tailnet needs.

    control_url   of a control server that is not the settings': None where the sites bring none
    name          of the cluster or the pool, for what is made in the tailnet; `stack` for words to people
    tag           of the machines, where the settings have none: those of a pool
    ephemeral     kind tailscale: whether the tailnet forgets machines that are away (those of a pool)

    RunError where the provider's package is missing.
    """
    kind = settings.kind_where(any(KINDS[site.kind].brings_tailnet for site in sites))
    if kind == TAILSCALE:
        try:
            network = import_module("stacks.tailnet.network")
        except ModuleNotFoundError as error:
            if error.name != "pulumi_tailscale":
                raise
            raise pulumi.RunError(_MISSING.format(stack=stack)) from None
        made = network.TailscaleNetwork(settings, name, ports(roles), tag=tag, ephemeral=ephemeral)
        return StackTailnet(made.access, made.policy)
    key = settings.auth_key
    own = settings.control_url if isinstance(settings, Tailnet) else None
    access = TailnetAccess(
        control_url=own or ("" if control_url is None else control_url),
        auth_key=key.get_secret_value() if key else "",
    )
    return StackTailnet(access, existing=kind == EXISTING)
