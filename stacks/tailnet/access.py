"""Access to a stack's tailnet, for every kind of tailnet."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import pulumi

from components.cluster.tailnet_access import TailnetAccess
from components.host import Host
from components.roles.network.tailnet.policy import Pods, ports
from components.roles.network.tailnet.settings import EXISTING, TAILSCALE, PoolTailnet, Tailnet
from components.roles.role import Role
from stacks.sites import KINDS
from stacks.sites.kind import Site
from stacks.tailnet.pods_policy import warning_of_pods

_MISSING = (
    "tailrack:tailnet.kind is tailscale, and the package pulumi-tailscale is not installed; run `make setup STACK="
    "{stack}`, or: .venv/bin/python -m pip install --require-hashes -r requirements/tailscale.txt"
)


@dataclass(frozen=True)
class StackTailnet:
    """A stack's tailnet.

    policy    the required content of its policy file; None if the stack does not know the tailnet's API
    existing  every machine is already a member, and stays one
    """

    access: TailnetAccess
    policy: Mapping[str, Any] | None = None
    existing: bool = False

    def hosts(self, hosts: Mapping[str, Host]) -> Mapping[str, Host]:
        """Return the hosts for this tailnet."""
        return {name: replace(host, adopt=True) for name, host in hosts.items()} if self.existing else hosts

    def adoption_warning(self, hosts: Mapping[str, Host]) -> str:
        """Return a warning about adopted machines and their tailnet; empty if there are none."""
        adopted = sorted(name for name, host in hosts.items() if host.adopt)
        if not adopted:
            return ""
        return (
            f"{', '.join(adopted)}: already in a tailnet (adopt). With Tailscale's default policy, root of any "
            "machine of the cluster can reach everything else in that tailnet, and the cluster's tag takes a device "
            "from its owner (docs/tailnet.md, a machine with an owner)"
        )


def tailnet_kind(settings: Tailnet | PoolTailnet, sites: Iterable[Site]) -> str:
    """Return the way to the tailnet of a stack with these sites."""
    return settings.kind_where(any(KINDS[site.kind].brings_tailnet for site in sites))


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
    pods: Pods,
) -> StackTailnet:
    """Create the resources for the stack's tailnet. Raises RunError if the provider's package is missing.

    control_url   the control server of the sites; None if they bring none
    name          name of the cluster or the pool, for resources in the tailnet; `stack` is for messages
    tag           tag of the machines, if the settings have none: for pools
    ephemeral     kind tailscale: whether the tailnet forgets machines that are offline: for pools
    pods          the stack's pods
    """
    kind = tailnet_kind(settings, sites)
    if kind == TAILSCALE:
        try:
            auth_keys = import_module("stacks.tailnet.auth_keys")
        except ModuleNotFoundError as error:
            if error.name != "pulumi_tailscale":
                raise
            raise pulumi.RunError(_MISSING.format(stack=stack)) from None
        tailnet = auth_keys.TailscaleNetwork(settings, name, ports(roles), tag, ephemeral, pods)
        return StackTailnet(tailnet.access, tailnet.policy)
    if pods and (warning := warning_of_pods(kind)):
        pulumi.log.warn(warning)
    key = settings.auth_key
    own_url = settings.control_url if isinstance(settings, Tailnet) else None
    access = TailnetAccess(
        control_url=own_url or ("" if control_url is None else control_url),
        auth_key=key.get_secret_value() if key else "",
    )
    return StackTailnet(access, existing=kind == EXISTING)
