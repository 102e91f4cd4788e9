"""Check that a tailnet's policy limits the pods of a pool. The stack of a cluster checks its own (auth_keys.py)."""

import asyncio
from collections.abc import Callable, Sequence

import pulumi

from components.roles.network.tailnet.policy import Pods, lacking
from components.roles.network.tailnet.settings import OF_A_SITE, TAILSCALE, WayToTailnet
from stacks.http_client import ApiError
from stacks.tailnet.api import Api
from stacks.tailnet.credentials import credentials

_RISK = "root of a pod's host reaches SSH, the share and every slurmd of the cluster unless its rules are those of "
_RULES = "docs/pods.md (the tailnet's policy)"


def warning_of_pods(kind: str) -> str:
    """Return a warning about pods in a tailnet whose policy no stack can read; empty if there is no need for one."""
    if kind in (TAILSCALE, OF_A_SITE):
        return ""
    return f"nothing checks the tailnet's policy with tailnet.kind {kind}: {_RISK}{_RULES}"


async def check_pods_policy(
    settings: WayToTailnet,
    tag: str,
    ports: Sequence[str],
    pods: Pods,
    warn: Callable[[str], object] = pulumi.log.warn,
) -> None:
    """Check the policy, with the pool's credentials. Warn if they cannot read it.

    Raises RunError if it does not limit pods, before any of them joins.
    """
    try:
        policy = await asyncio.to_thread(
            lambda: Api(settings.base_url, settings.organization, credentials(settings)).policy()
        )
    except ApiError as error:
        warn(
            f"the tailnet's policy is not checked, because the pool's credentials cannot read it ({error}): {_RISK}"
            f"{_RULES}. Give the credentials the scope policy_file:read"
        )
        return
    if reason := lacking(policy, tag, ports, pods):
        raise pulumi.RunError(
            f"the tailnet's policy is not sufficient for the pool's pods, so no machine has joined: {reason} (admin "
            f"console, Access controls; {_RULES}). If the cluster's stack has tailnet.policy: own, set it to print "
            "first"
        )
