"""Auth keys for a tailnet of kind `tailscale`, its policy, and the removal of machines, as resources."""

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pulumi
import pulumi_tailscale as tailscale
from pulumi_command import local

from components.cluster.tailnet_access import TailnetAccess
from components.roles.network.tailnet.policy import Pods, lacking, opens_all, pod_tag, policy
from components.roles.network.tailnet.settings import Tailnet, WayToTailnet
from components.steps.label import StepLabel
from components.steps.values import secret_once_known
from stacks.tailnet.credentials import credentials

# Period for new keys. A key from the current period lives for at least one more period, longer than any `up`. The clock
# decides, because the provider checks a key only on refresh.
PERIOD_SECONDS = 12 * 3600
LIFE_SECONDS = 2 * PERIOD_SECONDS
_LONGEST_NAME = 40  # of a description's 50 characters


def epoch(now: float) -> str:
    """Return the period of a time (seconds since 1970) as the hour of its start, UTC: `261121T12`."""
    return time.strftime("%y%m%dT%H", time.gmtime(now - now % PERIOD_SECONDS))


class TailscaleNetwork(pulumi.ComponentResource):
    """One stack's access to a tailnet.

    name        name of the cluster or the pool, for the key's description
    ephemeral   whether the tailnet forgets offline machines: for machines that come and go
    ports       ports that the policy must let the tag reach on itself
    tag         tag of a pool's machines, from its cluster, which then manages the policy
    pods        the stack's pods, which get another tag

    access      for the joins; its key is only available after the policy check
    policy      the required content of the policy file; None for a pool

    All machines use one key. It must be reusable, because a join may have to log in again (if a name was taken). One
    key per machine would add a resource per machine, all of them new in every period, because no one knows which were
    used. The key is limited by its life of a day and by its tag.
    """

    def __init__(
        self,
        settings: WayToTailnet,
        name: str,
        ports: Sequence[str],
        tag: pulumi.Input[str],
        ephemeral: bool,
        pods: Pods,
    ) -> None:
        super().__init__("tailrack:tailnet:TailscaleNetwork", name)
        self._settings = settings
        self._credentials = credentials(settings)
        self._provider = tailscale.Provider(
            "tailscale",
            tailnet=settings.organization,
            base_url=settings.base_url,
            opts=pulumi.ResourceOptions(parent=self),
            **{name: pulumi.Output.secret(value) for name, value in self._credentials.items()},
        )
        self._child = pulumi.ResourceOptions(parent=self, provider=self._provider)
        self._tag = settings.tag if isinstance(settings, Tailnet) else tag
        self.policy: Mapping[str, Any] | None = None
        requirements, sufficient = [], pulumi.Output.from_input(True)
        if isinstance(settings, Tailnet):
            whole = settings.policy == "own"
            self.policy = policy(settings.tag, ports, whole, settings.relay is not None, pods)
            if whole:
                # The provider overwrites only Tailscale's default file.
                text = json.dumps(self.policy, indent=2)
                requirements = [tailscale.Acl("tailnet-policy", acl=text, opts=self._child)]
            else:
                sufficient = self._check_policy(settings.tag, ports, pods)
        description = f"{name[:_LONGEST_NAME]} {epoch(time.time())}"

        def access(resource: str, tag: pulumi.Input[str], for_pods: TailnetAccess | None = None) -> TailnetAccess:
            key = tailscale.TailnetKey(
                resource,
                description=description,
                expiry=LIFE_SECONDS,
                ephemeral=ephemeral,
                preauthorized=True,
                reusable=True,
                recreate_if_invalid="always",  # a refresh notices a revoked key
                tags=[tag],
                opts=pulumi.ResourceOptions.merge(self._child, pulumi.ResourceOptions(depends_on=requirements)),
            )
            secret: pulumi.Output[str] = pulumi.Output.secret(key.key)
            auth_key = pulumi.Output.all(secret, sufficient).apply(lambda values: str(values[0]))
            return TailnetAccess(auth_key=auth_key, renewed=True, listed=partial(self._listed, tag), for_pods=for_pods)

        pod_access = access("tailnet-pod-key", pulumi.Output.from_input(self._tag).apply(pod_tag)) if pods else None
        self.access = access("tailnet-key", self._tag, pod_access)
        self.register_outputs({})

    def _check_policy(self, tag: str, ports: Sequence[str], pods: Pods) -> pulumi.Output[bool]:
        """Return true if the current policy is sufficient; else the program stops before any machine joins."""
        acl = tailscale.get_acl_output(opts=pulumi.InvokeOutputOptions(parent=self, provider=self._provider))
        text: pulumi.Output[str] = acl.json
        return text.apply(partial(_require, tag, ports, pods))

    def _listed(
        self,
        tag: pulumi.Input[str],
        name: str,
        address: pulumi.Output[str],
        parent: pulumi.Resource,
        join: pulumi.Resource,
    ) -> pulumi.Resource:
        """Return a resource that does nothing until it is deleted, which removes the machine from the list."""
        request = {
            "name": name,
            "base_url": self._settings.base_url,
            "organization": self._settings.organization,
            "credentials": self._credentials,
        }
        text = pulumi.Output.all(address=address, tag=tag).apply(lambda machine: json.dumps({**request, **machine}))
        label = StepLabel(f"{name}-device", "", f"{name}: add to the tailnet")
        return local.Command(
            label.name,
            create=label.on(":"),
            # Without paths of a checkout or a Python: the stack may be destroyed on another machine.
            delete=label.on("exec python3 -m stacks.tailnet.device"),
            stdin=secret_once_known(text),
            logging=local.Logging.NONE,
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(parent=parent, depends_on=[join]),
        )


def _require(tag: str, ports: Sequence[str], pods: Pods, text: str) -> bool:
    acl = json.loads(text)
    if opens_all(acl, tag):
        pulumi.log.warn(
            f"the tailnet's policy lets {tag} reach everything in it: root of one machine of the cluster can reach "
            "your other devices too. Restrict its rules to the required ports (docs/tailnet.md, a machine with an "
            "owner)"
        )
    if reason := lacking(acl, tag, ports, pods):
        raise pulumi.RunError(
            f"the tailnet's policy is not sufficient for the cluster, so no machine has joined: {reason} (admin "
            "console, Access controls; docs/tailnet.md shows the whole policy), or set tailrack:tailnet.policy to own"
        )
    return True
