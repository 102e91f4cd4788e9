"""Joining: tailscaled with its state on disk, a fixed host name and a tag, and the cluster's munge key."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from components.cluster_settings import Tailnet
from components.host import Host
from components.munge_key import MungeKey
from components.remote import Step


def join(
    host: Host,
    tailnet: Tailnet,
    munge: MungeKey,
    *,
    parent: pulumi.Resource,
    head_address: pulumi.Input[str] = "",
    depends_on: Sequence[pulumi.Resource] = (),
) -> Step:
    """Return the step whose result is tailnet_ip, path, dns_suffix, tailscale_version, sshd_port, host_key.

    path is `direct` or `relay`, how this machine reaches the head node, and `self` on the head node, where
    head_address is empty. The head node's result also has authority and leave_key, its two public keys.
    """
    return Step(
        f"{host.name}-join",
        host,
        "join",
        {"TAILNET_TAG": tailnet.tag, "CONTROL_URL": tailnet.control_url, "HEAD_ADDRESS": head_address},
        label=f"{host.name}: join the tailnet, munge key",
        libraries=("lib/packages", "lib/authority"),
        secrets={"AUTH_KEY": tailnet.auth_key, "MUNGE_KEY": munge.key},
        parent=parent,
        depends_on=depends_on,
    )
