"""A tailnet of kind `tailscale` as resources: a key for the joins, the policy, and machines that go from the list."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pulumi
import pulumi_tailscale as tailscale
from pulumi_command import local

from components.cluster.tailnet_access import TailnetAccess
from components.roles.tailnet.policy import lacking, opens_all, policy
from components.roles.tailnet.settings import CREDENTIALS, Tailnet, WayToTailnet
from components.steps.label import StepLabel
from components.steps.values import secret_once_known

# Of the key. One that a plain `up` finds made in this period lives for at least another one, which no `up` takes: the
# provider looks at a key on refresh alone, so that the clock has to say when it is due.
PERIOD_SECONDS = 12 * 3600
LIFE_SECONDS = 2 * PERIOD_SECONDS
_LONGEST_NAME = 40  # of a description's 50 characters


def epoch(now: float) -> str:
    """The period that a moment (seconds since 1970) lies in, by the hour that it began: `261121T12`, UTC."""
    return time.strftime("%y%m%dT%H", time.gmtime(now - now % PERIOD_SECONDS))


class TailscaleNetwork(pulumi.ComponentResource):
    """The way of one stack into a tailnet.

    name        of the cluster, or of the pool, in the key's description
    now         seconds since 1970; left out, the clock's
    ephemeral   whether the tailnet forgets machines that are away: for those that come and go
    wanted      ports that the policy has to let the tag reach on itself
    tag         of a pool's machines, which its cluster says; the policy is then the cluster's to look after

    access      for the joins; no key comes out of it before the policy was found to be enough
    policy      what the policy file has to hold; None for a pool

    One key for all machines. It has to be reusable: a join may have to log in a second time (a name that was taken),
    and a key for each machine would be one more resource of each, all made anew in every period, because nobody knows
    which of them were used. What it can do is bounded by its life of a day instead, and by its tag.
    """

    def __init__(
        self,
        settings: WayToTailnet,
        name: str,
        wanted: Sequence[str],
        *,
        tag: pulumi.Input[str] = "",
        ephemeral: bool = False,
        now: float | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("tailrack:tailnet:TailscaleNetwork", name, None, opts)
        self._settings = settings
        self._credentials = _credentials(settings)
        self._provider = tailscale.Provider(
            "tailscale",
            tailnet=settings.organization,
            base_url=settings.base_url,
            opts=pulumi.ResourceOptions(parent=self),
            **{name: pulumi.Output.secret(value) for name, value in self._credentials.items()},
        )
        self._own = pulumi.ResourceOptions(parent=self, provider=self._provider)
        self._tag = settings.tag if isinstance(settings, Tailnet) else tag
        self.policy: Mapping[str, Any] | None = None
        before, enough = [], pulumi.Output.from_input(True)
        if isinstance(settings, Tailnet):
            whole = settings.policy == "own"
            self.policy = policy(settings.tag, wanted, whole, settings.relay is not None)
            if whole:
                before = [self._written()]
            else:
                enough = self._looked_at(settings.tag, wanted)
        key = tailscale.TailnetKey(
            "tailnet-key",
            description=f"{name[:_LONGEST_NAME]} {epoch(time.time() if now is None else now)}",
            expiry=LIFE_SECONDS,
            ephemeral=ephemeral,
            preauthorized=True,
            reusable=True,
            recreate_if_invalid="always",  # a refresh sees that somebody has revoked it
            tags=[self._tag],
            opts=pulumi.ResourceOptions.merge(self._own, pulumi.ResourceOptions(depends_on=before)),
        )
        given: pulumi.Output[str] = pulumi.Output.secret(key.key)
        auth_key = pulumi.Output.all(given, enough).apply(lambda known: str(known[0]))
        self.access = TailnetAccess(auth_key=auth_key, renewed=True, listed=self._listed)
        self.register_outputs({})

    def _written(self) -> pulumi.Resource:
        """The whole policy file. The provider refuses to write over one that is not Tailscale's first one."""
        written: pulumi.Resource = tailscale.Acl(
            "tailnet-policy", acl=json.dumps(self.policy, indent=2), opts=self._own
        )
        return written

    def _looked_at(self, tag: str, wanted: Sequence[str]) -> pulumi.Output[bool]:
        """True when the policy in force is enough; else the program ends, before any machine has joined."""
        found = tailscale.get_acl_output(opts=pulumi.InvokeOutputOptions(parent=self, provider=self._provider))
        text: pulumi.Output[str] = found.json
        return text.apply(partial(_require, tag, wanted))

    def _listed(
        self, name: str, address: pulumi.Output[str], parent: pulumi.Resource, join: pulumi.Resource
    ) -> pulumi.Resource:
        """Does nothing until it is deleted; then the machine goes from the list, also one that is long dead."""
        told = {
            "name": name,
            "base_url": self._settings.base_url,
            "organization": self._settings.organization,
            "credentials": self._credentials,
        }
        text = pulumi.Output.all(address=address, tag=self._tag).apply(lambda known: json.dumps({**told, **known}))
        label = StepLabel(f"{name}-device", "", f"{name}: add to the tailnet")
        return local.Command(
            label.name,
            create=label.on(":"),
            # Of any checkout, by any Python: the stack may be destroyed elsewhere than where it was made.
            delete=label.on("exec python3 -m stacks.tailnet.device"),
            stdin=secret_once_known(text),
            logging=local.Logging.NONE,
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(parent=parent, depends_on=[join]),
        )


def _credentials(settings: WayToTailnet) -> dict[str, str]:
    """Those that are set, by their names, opened."""
    given = {name: getattr(settings, name) for name in CREDENTIALS}
    return {
        name: value if isinstance(value, str) else value.get_secret_value()
        for name, value in given.items()
        if value is not None
    }


def _require(tag: str, wanted: Sequence[str], text: str) -> bool:
    found = json.loads(text)
    if opens_all(found, tag):
        pulumi.log.warn(
            f"the tailnet's policy lets {tag} reach everything in it: whoever is root of one machine of the cluster "
            "reaches your other devices too. Have its rules name what they are for (docs/tailnet.md, a machine with an "
            "owner)"
        )
    if said := lacking(found, tag, wanted):
        raise pulumi.RunError(
            f"the tailnet's policy is not enough for the cluster, and no machine has joined: {said} (admin console, "
            "Access controls; the whole of it is in docs/tailnet.md), or set tailrack:tailnet.policy to own"
        )
    return True
